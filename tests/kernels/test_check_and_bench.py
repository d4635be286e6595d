"""`check` fails when a kernel is wrong or reads more than it says; `bench` keeps its floors."""

import json
from dataclasses import replace

import pytest
import torch

import kernels
from kernels import __main__ as command
from kernels import backend, bench, check, gates
from kernels.attention_shape import AttentionShape

SHAPE = AttentionShape("tiny", 2, 1, 19, 6, 3, 12)


@pytest.fixture
def decode():
    return gates.module("decode_attention")


@pytest.mark.triton_runs
def test_a_right_kernel_passes():
    found = check.check_shape("decode_attention", SHAPE)
    assert found.problem == "" and 0 <= found.error < 1e-5


@pytest.mark.triton_runs
@pytest.mark.parametrize("name", kernels.KERNELS)
def test_every_kernel_passes(name):
    found = [check.check_shape(name, shape) for shape in gates.module(name).SMALL]
    assert not any(one.problem for one in found), check.show(found)


@pytest.mark.triton_runs
@pytest.mark.parametrize("spoil, verdict", [
    (lambda output: output * 1.01, "WRONG NUMBERS"),
    (lambda output: output.index_fill(0, torch.tensor([1]), torch.nan), "WRONG NUMBERS"),
])
def test_wrong_numbers_fail(decode, monkeypatch, spoil, verdict):
    launch = decode._launch
    monkeypatch.setattr(decode, "_launch", lambda *args: spoil(launch(*args)))
    assert check.check_shape("decode_attention", SHAPE).problem == verdict


@pytest.mark.interpreter
@pytest.mark.parametrize("key", ["bytes_read", "bytes_written"])
def test_one_byte_more_than_foretold_fails(decode, monkeypatch, key):
    foretold = decode.expected(SHAPE)
    monkeypatch.setattr(decode, "expected", lambda _: {**foretold, key: foretold[key] - 1})
    found = check.check_shape("decode_attention", SHAPE)
    assert found.problem.startswith("TRAFFIC SAID")
    assert found.problem.split()[2] in check.show([found])


def test_poison_shows_what_was_not_stored():
    with check.poisoned():
        assert torch.empty(7).isnan().all()
        assert torch.ones(3, 2).new_empty(5).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.triton_runs
def test_check_command(decode, monkeypatch, capsys):
    monkeypatch.setattr(decode, "SMALL", (SHAPE,))
    assert command.main(["check", "decode_attention"]) == 0
    out = capsys.readouterr().out
    assert "tiny" in out and "all equal" in out
    monkeypatch.setattr(check, "ALLOWED", {torch.float32: 0.0})
    assert command.main(["check", "decode_attention", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["problem"] == "WRONG NUMBERS"


def test_usage(capsys):
    assert command.main(["check", "nothing_of_the_kind"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and "there are: first_kernels" in told.err
    for words in ([], ["polish"], ["compile"], ["bench", "--loud"]):
        assert command.main(words) == 2
        told = capsys.readouterr()
        assert told.out == "" and told.err.count("\n") == 1 and "--help" in told.err


@pytest.mark.skipif(backend.current().name == "cuda", reason="there is a GPU")
def test_bench_without_a_gpu_is_one_sentence(capsys):
    assert command.main(["bench"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1
    assert "bench times compiled kernels on a GPU" in told.err


CARD = bench.Card("NVIDIA Some Card", copy_bandwidth=2e12,
                  matmul_rate={"bfloat16": 5e14, "float32": 5e13})


def test_floor_is_the_longer_of_moving_and_multiplying():
    moving = {"bytes_read": 3 * 10**9, "bytes_written": 10**9, "flops": 10**9}
    assert bench.floor(moving, CARD, "bfloat16") == pytest.approx(2e-3)
    assert bench.floor({**moving, "flops": 10**12}, CARD, "float32") == pytest.approx(2e-2)


def test_record_and_table(tmp_path):
    timed = bench.Timed("decode_attention", "tiny", "bfloat16", bytes_moved=10**9, flops=10**9,
                        seconds=1e-3, floor=5e-4, sdpa=None)
    path = bench.record(CARD, [timed], tmp_path / "results")
    content = json.loads(path.read_text())
    assert path.name.endswith("-nvidia-some-card.json") and content["date"] in path.name
    assert content["card"]["copy_bandwidth"] == 2e12 and content["torch"] == torch.__version__
    assert content["kernels"][0]["of_floor"] == 0.5
    shown = bench.show(CARD, [timed])
    assert "50%" in shown and "copies 2000 GB/s" in shown


@pytest.mark.parametrize("tokens", [1, 5])
def test_sdpa_computes_the_same_thing(tokens, device):
    name = "decode_attention" if tokens == 1 else "flash_attention"
    shape = AttentionShape("x", 2, tokens, 19, 6, 3, 12)
    inputs = shape.arguments(device)
    theirs = bench.sdpa(shape, inputs)().transpose(1, 2)
    torch.testing.assert_close(theirs, gates.call(name, shape, inputs, "torch"), rtol=0, atol=1e-5)
    assert bench.sdpa(shape, replace(shape, window=3).arguments(device)) is None
    first = gates.module("first_kernels").SMALL[0]
    assert bench.sdpa(first, first.arguments(device)) is None


def test_sdpa_decodes_a_latent_too(device):
    shape = replace(gates.module("mla_decode").SMALL[0], label="x")
    inputs = shape.arguments(device)
    theirs = bench.sdpa(shape, inputs)().transpose(1, 2)
    ours = gates.call("mla_decode", shape, inputs, "torch")
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)
    assert bench.sdpa(shape, replace(shape, lengths=(3, 1)).arguments(device)) is None
    paged = gates.module("decode_attention").SMALL[-1]
    assert bench.sdpa(paged, replace(paged, window=None, lengths=None).arguments(device)) is None


def test_gates_name_the_kernels_there_are():
    with pytest.raises(ValueError, match="no kernel 'x'; there are: first_kernels"):
        gates.module("x")
    assert "first_kernels" in kernels.KERNELS
