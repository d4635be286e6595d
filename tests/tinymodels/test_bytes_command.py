"""`python -m tinymodels bytes`: JSON as promised, tables, errors of one sentence, and its speed."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tinymodels.bytes_command import main
from tinymodels.bytes_table import amount, decimal, span
from tinymodels.published import PUBLISHED

ROOT = Path(__file__).parents[2]
LLAMA = ROOT / "tests" / "configs" / "llama-3.1-8b.json"
KEYS = "model status context batch rate exact persistent per_layer constant layout source".split()


def answer(capsys, *arguments) -> dict:
    """The JSON that a call prints; it must succeed and say nothing on stderr."""
    assert main([*map(str, arguments), "--json"]) == 0
    out = capsys.readouterr()
    assert out.err == ""
    return json.loads(out.out)


def refusal(capsys, *arguments) -> str:
    """The one sentence of a call that must exit with 2 and print nothing else."""
    assert main([*map(str, arguments)]) == 2
    out = capsys.readouterr()
    assert out.out == "" and out.err.count("\n") == 1 and "Traceback" not in out.err
    return out.err


@pytest.mark.parametrize(
    "name, status, rate",
    [
        ("deepseek-67b", "R", 389_120),
        ("deepseek-v2", "D", 69_120),
        ("deepseek-v2-lite", "D", 31_104),
        ("deepseek-v3", "D", 70_272),
        ("deepseek-v3.2", "R", 48_068),
        ("deepseek-v4-flash", "R", 3_514.25),
        ("deepseek-v4-pro", "D", 5_031.4375),
        ("deepseek-v4.1-flash", "C", 890),
    ],
)
def test_json_of_the_published_models(capsys, name, status, rate):
    found = answer(capsys, name)
    assert list(found) == KEYS
    assert list(found["exact"]) == ["global", "window", "open_state", "total"]
    assert list(found["per_layer"][0]) == ["layer", "attention", "owner", "main", "index", "window"]
    assert (found["model"], found["status"], found["layout"]) == (name, status, "deployed")
    assert found["rate"] == rate and type(found["rate"]) is type(rate)
    assert found["context"] == PUBLISHED[name].config.context and found["batch"] == 1
    assert found["source"] == PUBLISHED[name].rate.source


def test_context_and_batch(capsys):
    found = answer(capsys, "deepseek-v4.1-flash", "--context", 127, "--batch", 3)
    assert found["exact"] == {
        "global": 3 * 112_496,
        "window": 3 * 127 * 528 * 40,
        "open_state": 3 * 24_576,
        "total": 3 * (112_496 + 127 * 528 * 40 + 24_576),
    }
    assert found["persistent"] == 3 * 112_496 and found["rate"] == 890
    lines = found["per_layer"]
    assert sum(x["main"] + x["index"] for x in lines) == found["exact"]["global"]
    assert sum(x["window"] for x in lines) == found["exact"]["window"]


def test_no_tokens(capsys):
    found = answer(capsys, "deepseek-v4-flash", "--context", 0)
    assert found["exact"] == {
        "global": 0,
        "window": 0,
        "open_state": 12_206_080,
        "total": 12_206_080,
    }


def test_layouts(capsys):
    assert answer(capsys, "deepseek-v2", "--kv-bits", 6)["rate"] == 25_920
    six = answer(capsys, "deepseek-v2", "--kv-bits", 6, "--context", 7)
    assert (six["layout"], six["status"], six["exact"]["global"]) == ("6-bit", "D", 181_440)
    plain = answer(capsys, "deepseek-v3.2", "--layout", "bf16")
    assert (plain["layout"], plain["status"], plain["rate"]) == ("bf16", "D", 85_888)
    assert "bf16 rows" in plain["source"]
    deployed = answer(capsys, "deepseek-v3.2", "--layout", "deployed")
    assert (deployed["layout"], deployed["status"], deployed["rate"]) == ("deployed", "R", 48_068)
    v1 = answer(capsys, "deepseek-67b", "--layout", "bf16")  # the same rows, so the same status
    assert (v1["layout"], v1["status"], v1["rate"]) == ("bf16", "R", 389_120)


def test_a_configuration_file(capsys, tmp_path):
    found = answer(capsys, LLAMA)
    assert list(found) == KEYS
    assert (found["model"], found["status"], found["layout"]) == ("llama-3.1-8b", "D", "bf16")
    assert (found["rate"], found["context"]) == (131_072, 131_072)
    assert answer(capsys, LLAMA, "--kv-bits", 4)["rate"] == 32_768
    declared = tmp_path / "declared.json"
    declared.write_text(json.dumps({**json.loads(LLAMA.read_text()), "kv_cache_dtype": "fp8"}))
    found = answer(capsys, declared)
    assert (found["layout"], found["rate"]) == ("8-bit", 65_536)
    found = answer(capsys, declared, "--layout", "bf16")
    assert (found["layout"], found["rate"]) == ("bf16", 131_072)


def test_a_file_named_like_a_published_model_is_not_that_model(capsys):
    found = answer(capsys, ROOT / "tests" / "configs" / "deepseek-v3.2.json", "--explain")
    assert (found["layout"], found["rate"], found["status"]) == ("bf16", 85_888, "D")
    assert {term["status"] for term in found["explain"]} == {"D"}


def test_constant_state(capsys):
    found = answer(capsys, ROOT / "tests" / "configs" / "minimax-m1.json", "--batch", 2)
    assert found["constant"] == 2 * 70 * 64 * 128 * 128 * 2
    assert found["exact"]["total"] == found["exact"]["global"] + found["constant"]


def test_explain(capsys):
    terms = answer(capsys, "deepseek-v4-flash", "--explain")["explain"]
    growing = [t for t in terms if t["unit"] == "bytes per token"]
    assert [(t["arithmetic"], t["value"], t["status"]) for t in growing] == [
        ("21 x (448 + 128 + 7 + 1) / 4", 3_066, "C"),
        ("20 x (448 + 128 + 7 + 1) / 128", 91.25, "C"),
        ("21 x (64 + 4) / 4", 357, "C"),
        ("3,066 + 91.25 + 357", 3_514.25, "R"),
    ]
    left_out = sum(t["value"] for t in terms if "not in the rate" in t["unit"])
    assert left_out == 3_214_336 + 12_206_080
    assert all(t["source"] and t["status"] in "CRD" for t in terms)
    six = answer(capsys, "deepseek-v2", "--explain", "--kv-bits", 6)
    assert [(t["arithmetic"], t["value"], t["status"]) for t in six["explain"][:2]] == [
        ("60 x 432", 25_920, "D"),
        ("25,920", 25_920, "D"),
    ]
    assert ("published: reduction", 93.3, "C") in [
        (t["term"], t["value"], t["status"]) for t in six["explain"]
    ]
    notes = answer(capsys, ROOT / "tests" / "configs" / "gemma-3-27b.json", "--explain")["notes"]
    assert any("one full layer in 6" in note for note in notes)


def test_cards(capsys):
    found = answer(capsys, "deepseek-v4.1-flash", "--gpu", "h100", "--context", 1_000_000)["gpu"]
    sequence = 890_000_000 + 2_703_360 + 24_576
    weights = 551_566_165_104
    assert (found["name"], found["memory"]) == ("H100", 80 * 10**9)
    assert found["weights"] == {
        "bf16": {
            "cards": 14,
            "weight_bytes": 2 * weights,
            "sequence_bytes": sequence,
            "sequences": (14 * 80 * 10**9 - 2 * weights) // sequence,
        },
        "fp8": {
            "cards": 7,
            "weight_bytes": weights,
            "sequence_bytes": sequence,
            "sequences": (7 * 80 * 10**9 - weights) // sequence,
        },
    }
    unknown = answer(capsys, LLAMA, "--gpu", "4090")["gpu"]["weights"]
    assert unknown == {
        "not counted": {
            "cards": 1,
            "weight_bytes": 0,
            "sequence_bytes": 131_072 * 131_072,
            "sequences": 1,
        }
    }


def test_diff(capsys):
    assert main(["deepseek-v3.2", "--diff", "deepseek-v3", "--context", "10", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["model"], found["diff"]["other"]["model"]) == ("deepseek-v3.2", "deepseek-v3")
    differs = found["diff"]["differs"]
    assert differs["rate"] == [48_068, 70_272] and differs["persistent"] == [480_680, 702_720]
    assert not {"context", "batch", "constant", "layout", "per_layer"} & set(differs)


def test_a_longer_context_than_the_model_is_made_for(capsys):
    assert main(["deepseek-67b", "--context", "5000", "--json"]) == 0
    out = capsys.readouterr()
    assert json.loads(out.out)["exact"]["global"] == 389_120 * 5000
    assert out.err == "note: 5,000 tokens are more than the 4,096 that deepseek-67b is made for\n"


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["deepseek-v4.1"], "did you mean deepseek-v4.1-flash? The names are deepseek-67b, "),
        (["v9"], "no published model is named 'v9'"),
        ([], "required: NAME|config.json"),
        (["none.json"], "there is no such file"),
        (["deepseek-v3", "--context", "-1"], "--context is '-1'; it must be an integer >= 0"),
        (["deepseek-v3", "--context", "4K"], "--context is '4K'"),
        (["deepseek-v3", "--context", "9" * 400], "--context has 400 digits; at most 1,000,000,"),
        (["deepseek-v3", "--batch", "0"], "--batch is '0'; it must be an integer >= 1"),
        (["deepseek-v3", "--gpu", "H1000"], "no card is named 'H1000'; did you mean H100?"),
        (["deepseek-v3", "--kv-bits", "0"], "--kv-bits is '0'"),
        (["deepseek-v3", "--kv-bits", "65"], "--kv-bits is 65; a cached value takes 1 to 64"),
        (["deepseek-v3", "--kv-bits", "6", "--layout", "bf16"], "both choose the row"),
        (["deepseek-v3", "--layout", "fp8"], "invalid choice: 'fp8'"),
        (["deepseek-v3", "--diff", "v9"], "no published model is named 'v9'"),
        (["deepseek-v3", "--con", "5"], "unrecognized arguments: --con 5"),
    ],
)
def test_refusals(capsys, arguments, sentence):
    for more in ([], ["--json"]):
        assert sentence in refusal(capsys, *arguments, *more)


@pytest.mark.parametrize(
    "text", ["", "[1]", '{"model_type": "llama"}', '{"model_type": "llama", "hidden_size": NaN}']
)
def test_broken_files(capsys, tmp_path, text):
    file = tmp_path / "config.json"
    file.write_text(text)
    refusal(capsys, file, "--json")


@pytest.mark.parametrize(
    "arguments",
    [
        ["deepseek-v4.1-flash", "--explain", "--gpu", "B200"],
        ["deepseek-67b", "--diff", "deepseek-v4.1-flash", "--context", "4000"],
        [str(ROOT / "tests" / "configs" / "gemma-4-e2b.json"), "--explain"],
    ],
)
def test_tables(capsys, arguments):
    assert main(arguments) == 0
    out = capsys.readouterr()
    text = " ".join(out.out.split())
    assert out.err == "" and "bytes by layer" in text
    if "--gpu" in arguments:
        for part in ("890", "stated by its source", "(256 + 32) / 2", "B200 cards of 192 GB"):
            assert part in text
    if "--diff" in arguments:
        assert "389,120" in text and "437.2 x less" in text


def test_names_of_files_are_not_markup(capsys, tmp_path):
    file = tmp_path / "[red]odd[/nothing].json"
    file.parent.mkdir(exist_ok=True, parents=True)
    file = tmp_path / "[red]odd.json"
    file.write_text(LLAMA.read_text())
    assert main([str(file)]) == 0
    assert "[red]odd" in capsys.readouterr().out


def test_how_numbers_are_written():
    assert amount(389_120_000_000) == "389,120,000,000 (389 GB)"
    assert (amount(890), decimal(890), decimal(2_703_360)) == ("890", "890 B", "2.7 MB")
    assert decimal(4.2e18) == "4,200 PB"
    assert span([0, 1]) == "0-1" and span([7]) == "7" and span([2, 8, 14]) == "2, 8, 14"
    assert span([2, 4, 6, 8]) == "2, 4 ... 8" and span([0, 1, 2, 5, 6]) == "0-2, 5-6"


def run(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "tinymodels", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


def test_from_outside():
    done = run("bytes", "deepseek-v4.1-flash", "--json")
    assert (done.returncode, done.stderr, json.loads(done.stdout)["rate"]) == (0, "", 890)
    wrong = run("bytes", "deepseek-v5", "--json")
    assert (wrong.returncode, wrong.stdout) == (2, "") and wrong.stderr.count("\n") == 1
    for arguments in ([], ["weigh"]):
        nothing = run(*arguments)
        assert (nothing.returncode, nothing.stdout) == (2, "")
        assert "the commands are bytes" in nothing.stderr
    assert run("--help").returncode == run("bytes", "--help").returncode == 0


def cpu_of_children() -> float:
    """CPU seconds of the processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_it_answers_at_once():
    """Under 0.3 s on an idle machine: counted in CPU seconds, as a busy one takes longer for the
    same work; the best of five."""
    times = []
    for _ in range(5):
        before = cpu_of_children()
        assert run("bytes", "deepseek-v4.1-flash").returncode == 0
        times.append(cpu_of_children() - before)
    assert 0 < min(times) < 0.8
    code = (
        "import sys; from tinymodels.__main__ import main; main(sys.argv[1:]);"
        "print([m for m in ('torch', 'numpy', 'triton') if m in sys.modules], file=sys.stderr)"
    )
    for arguments in (["deepseek-v3", "--json"], ["deepseek-v3"], [str(LLAMA), "--explain"]):
        command = [sys.executable, "-c", code, "bytes", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert (done.returncode, done.stderr.strip()) == (0, "[]")
