"""Traces: what is found again within a budget, and files that are refused line by line."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinymodels.serving.day import BLOCK, Request, agents_day, load, replay, save

from .test_store_faults import FullDisk

made = st.lists(
    st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=5), st.integers(0, 511)),
    min_size=1,
    max_size=25,
)


def trace_of(drawn):
    """Texts of 0, 1, 2: an id is the whole text up to its piece, so equal ids mean equal text."""
    found = []
    for at, (text, rest) in enumerate(drawn):
        ids = tuple("".join(map(str, text[: i + 1])) for i in range(len(text)))
        length = BLOCK * len(text) + rest
        found.append(Request(at, length, 3, ids + ("tail" + str(at),) * (rest > 0)))
    return found


def by_hand(trace, pieces):
    """A list of names, oldest first, and nothing clever."""
    held, hit = [], 0
    for request in trace:
        chain = request.hash_ids[: request.input_length // BLOCK]
        have = 0
        while have < len(chain) and chain[have] in held:
            have += 1
        hit += min(have * BLOCK, (request.input_length - 1) // BLOCK * BLOCK)
        fit = max(have, min(len(chain), pieces))
        for name in reversed(chain[:fit]):
            if name in held:
                held.remove(name)
            held.append(name)
        others = [name for name in held if name not in chain[:fit]]
        held = others[max(0, len(held) - pieces) :] + [n for n in held if n in chain[:fit]]
    return hit


@settings(max_examples=150)
@given(made, st.integers(0, 12))
def test_hits_are_those_of_a_plain_list(drawn, pieces):
    trace = trace_of(drawn)
    day = replay(trace, 3.5, pieces * int(BLOCK * 3.5))
    assert day.hit == by_hand(trace, pieces)
    assert day.hit + day.miss == sum(r.input_length for r in trace)
    assert day.output == 3 * len(trace)
    assert day.most_held <= pieces * int(BLOCK * 3.5)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_more_room_never_finds_less_and_only_pieces_count(seed):
    trace = agents_day(agents=5, hours=2, seed=seed)
    days = [replay(trace, 890, pieces * BLOCK * 890) for pieces in (0, 16, 90, 300, 900, 10**6)]
    hits = [day.hit for day in days]
    assert hits == sorted(hits) and hits[0] == 0 and hits[-1] > 0.8 * (hits[-1] + days[-1].miss)
    # Ten times the bytes in ten times the budget is the same day.
    assert replay(trace, 8900, 90 * BLOCK * 8900).hit == days[2].hit


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_smaller_entry_finds_more_in_the_same_budget(seed):
    trace = agents_day(agents=8, hours=3, seed=seed)
    v3, v4, v4_1 = (replay(trace, rate, 3 * 10**8).hit_rate for rate in (70_272, 3514.25, 890))
    assert v3 < 0.6 * v4 and v4 < v4_1 - 0.005


def test_an_agent_sends_what_it_sent_before():
    trace = agents_day(agents=3, hours=2, seed=4)
    assert trace == agents_day(agents=3, hours=2, seed=4) != agents_day(3, 2, seed=5)
    assert {r.hash_ids[:16] for r in trace} == {tuple(range(16))}
    for r in trace:
        assert len(r.hash_ids) == -(-r.input_length // BLOCK) == len(set(r.hash_ids))


def test_files_go_and_come(tmp_path):
    trace = agents_day(agents=2, hours=1, seed=0)
    save(trace, tmp_path / "day.jsonl")
    assert load(tmp_path / "day.jsonl") == trace


def test_a_full_disk_costs_no_file_that_was_there(tmp_path):
    trace = agents_day(agents=2, hours=1, seed=0)
    save(trace[:1], tmp_path / "day.jsonl")
    with FullDisk(300), pytest.raises(OSError):
        save(trace, tmp_path / "day.jsonl")
    assert load(tmp_path / "day.jsonl") == trace[:1]
    assert [path.name for path in tmp_path.iterdir()] == ["day.jsonl"]


RIGHT = {"timestamp": 5, "input_length": 1030, "output_length": 2, "hash_ids": [1, 2, 3]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: no JSON"),
        ("[1]", "list instead of an object"),
        (json.dumps(RIGHT | {"timestamp": None}), "timestamp is None; it must be a number"),
        (json.dumps(RIGHT | {"timestamp": float("nan")}), "timestamp is nan"),
        (json.dumps(RIGHT | {"input_length": 1030.5}), "input_length is 1030.5; .* whole"),
        (json.dumps(RIGHT | {"output_length": -1}), "output_length is -1"),
        (json.dumps(RIGHT | {"input_length": 0}), "input_length is 0"),
        (json.dumps(RIGHT | {"input_length": True}), "input_length is True"),
        (json.dumps(RIGHT | {"hash_ids": 3}), "hash_ids is 3"),
        (json.dumps(RIGHT | {"hash_ids": [1]}), "1 ids .1 different. for 1030 tokens"),
        (json.dumps(RIGHT | {"hash_ids": [1, 1, 2]}), "3 ids .2 different"),
        # Other open traces have the same fields and an id for each 16 tokens (Qwen's, of Bailian).
        (json.dumps(RIGHT | {"hash_ids": list(range(65))}), "65 ids .65 different. for 1030 tok"),
        (json.dumps(RIGHT | {"hash_ids": [1, 2, 3, 4]}), "4 ids .* each 512 tokens need"),
        ("[" * 100_000, "line 2: no JSON"),
        ('{"timestamp": ' + "1" * 5000 + "}", "line 2: no JSON"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path, line, message):
    (tmp_path / "t.jsonl").write_text(json.dumps(RIGHT) + "\n" + line + "\n")
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "t.jsonl")


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_file_as_windows_writes_it(tmp_path, mark, end):
    text = mark + end.join([json.dumps(RIGHT), "", json.dumps(RIGHT | {"timestamp": 3}), ""])
    (tmp_path / "t.jsonl").write_bytes(text.encode())
    assert [r.timestamp for r in load(tmp_path / "t.jsonl")] == [3, 5]


def test_an_empty_file_is_refused(tmp_path):
    (tmp_path / "t.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="holds no request"):
        load(tmp_path / "t.jsonl")
    with pytest.raises(ValueError, match="nobody.jsonl cannot be read"):
        load(tmp_path / "nobody.jsonl")
    (tmp_path / "t.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="t.jsonl cannot be read"):
        load(tmp_path / "t.jsonl")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: replay([Request(0, 1, 1, ())], 0, 1), "token_bytes is 0"),
        (lambda: replay([Request(0, 1, 1, ())], float("inf"), 1), "token_bytes is inf"),
        (lambda: replay([Request(0, 1, 1, ())], 1, -1), "budget is -1"),
        (lambda: replay([Request(0, 1, 1, ())], 1, float("nan")), "budget is nan"),
        (lambda: replay([], 1, 1), "the trace is empty"),
        (
            lambda: replay([Request(0, 1024, 1, (1, 2)), Request(1, 1024, 1, (3, 2))], 1, 4096),
            "id 2 comes after different beginnings",
        ),
        (lambda: agents_day(agents=0), "agents is 0"),
        (lambda: agents_day(agents=1.5), "agents is 1.5"),
        (lambda: agents_day(hours=0), "hours 0"),
        (lambda: agents_day(hours=float("inf")), "hours inf"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()


class Asked(int):
    """A number that counts how often it is looked up."""

    times = 0

    def __hash__(self):
        Asked.times += 1
        return int.__hash__(self)


@pytest.mark.parametrize("budget", [0, 120, 300, 10**6])
def test_a_text_twice_as_long_is_twice_the_work(monkeypatch, budget):
    work = []
    for count in (200, 400):
        texts = [tuple(Asked(count * k + i) for i in range(count)) for k in (0, 1, 0)]
        monkeypatch.setattr(Asked, "times", 0)
        replay([Request(0, BLOCK * count, 1, text) for text in texts], 1, budget * BLOCK)
        work.append(Asked.times)
    assert work[1] < 2.5 * work[0]


# Lengths and ids as in Mooncake's toolagent_trace.jsonl; then what other writers of the form do.
FROM_OUTSIDE = (
    (0, 2290, 316, [0, 42, 43, 44, 45]),
    (0, 3121, 20, [74, 75, 76, 77, 78, 79, 80]),
    (150.5, 40, 5, []),
    (3000, 3137, 19, [74, 75, 76, 77, 78, 126, 127]),
    (4000, 600, 1, ["a\u2028b", "c"]),
)


def test_a_trace_as_others_write_it(tmp_path):
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    lines = (json.dumps(dict(zip(names, r)), ensure_ascii=False) for r in FROM_OUTSIDE)
    (tmp_path / "t.jsonl").write_text("\n".join(lines), encoding="utf-8")
    trace = load(tmp_path / "t.jsonl")
    assert [r.timestamp for r in trace] == [0, 0, 150.5, 3000, 4000]
    day = replay(trace, 890, 10**9)
    assert day.hit == 5 * BLOCK and day.miss == 2290 + 3121 + 40 + 3137 - 5 * BLOCK + 600


def test_the_example_of_the_docstring_can_be_loaded(tmp_path):
    from tinymodels.serving import day

    (line,) = (line for line in day.__doc__.splitlines() if line.startswith("    {"))
    (tmp_path / "t.jsonl").write_text(line)
    assert len(load(tmp_path / "t.jsonl")[0].hash_ids) == 3
