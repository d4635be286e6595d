"""A speed is one that was measured, or it is said that none was."""

import pytest

from kernels import bench, measured

CARD = bench.Card("NVIDIA Some Card", copy_bandwidth=2e12, matmul_rate={"bfloat16": 5e14})


def timed(kernel, shape, seconds, sdpa=None):
    return bench.Timed(kernel, shape, "bfloat16", bytes_moved=10**9, flops=0, seconds=seconds,
                       floor=5e-4, sdpa=sdpa)


def test_nothing_is_made_up(tmp_path):
    assert measured.latest(tmp_path) is None and measured.latest(tmp_path / "absent") is None
    assert measured.sentence("mla_decode", folder=tmp_path) == (
        "mla_decode: not measured yet on a GPU (python -m kernels bench)")


def test_what_bench_wrote(tmp_path):
    path = bench.record(CARD, [timed("mla_decode", "long", 1e-3, sdpa=2e-3),
                               timed("mla_decode", "short", 6.25e-4)], tmp_path)
    (tmp_path / "2099-01-01-a-card-gpu.json").write_text("{}")  # of the other command
    assert measured.latest(tmp_path)["card"]["name"] == "NVIDIA Some Card"
    said = measured.sentence("mla_decode", folder=tmp_path)
    assert said.startswith("mla_decode, long, bfloat16: 1,000 microseconds, torch's own takes "
                           "2,000; 50% of what the card can do (NVIDIA Some Card, 2")
    said = measured.sentence("mla_decode", "short", tmp_path)
    assert "625 microseconds; 80%" in said
    assert "not measured yet" in measured.sentence("select_topk", folder=tmp_path)
    newer = tmp_path / f"3{path.name[1:]}"
    newer.write_text(path.read_text().replace("Some Card", "Newer Card"))
    assert "Newer Card" in measured.sentence("mla_decode", folder=tmp_path)


@pytest.mark.parametrize("content, words", [("{", "is no JSON"), ("[]", "holds no results"),
                                            ('{"date": 1}', "holds no results")])
def test_another_file_is_refused(tmp_path, content, words):
    (tmp_path / "2026-01-01-x.json").write_text(content)
    with pytest.raises(ValueError, match=words):
        measured.latest(tmp_path)
