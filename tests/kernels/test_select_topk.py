"""select_topk against a sort in Python: ties, order, padding, candidate blocks."""

import math

import pytest
import torch

from kernels import bounds, candidate_blocks, select_topk
from kernels.check import poisoned
from kernels.visibility import counts_of

IMPLS = ["torch", pytest.param("triton", marks=pytest.mark.triton_runs)]


def best_of(scores, allowed, k, width):
    """The rule itself: highest first, of equal ones the lowest index, then position order."""
    def rank(entry):
        score = scores[entry]
        return (0, 0.0, entry) if math.isnan(score) else (1, -score, entry)

    found = sorted(sorted(allowed, key=rank)[:k])
    return found + [-1] * (width - len(found))


def wanted(score, k, ratio=1, start=None, blocks=None, block=8):
    batch, tokens, entries = score.shape
    start = start.tolist() if isinstance(start, torch.Tensor) else start
    seen = counts_of(batch=batch, tokens=tokens, entries=entries, ratio=ratio, start=start)
    answer = []
    for b in range(batch):
        for t in range(tokens):
            allowed = range(seen[b][t])
            if blocks is not None:
                kept = set(blocks[b, t].tolist())
                allowed = [entry for entry in allowed if entry // block in kept]
            answer.append(best_of(score[b, t].tolist(), allowed, k, min(k, entries)))
    return torch.tensor(answer, dtype=torch.int32).view(batch, tokens, -1)


def wanted_blocks(score, keep, block, ratio=1, start=None):
    batch, tokens, entries = score.shape
    seen = counts_of(batch=batch, tokens=tokens, entries=entries, ratio=ratio, start=start)
    number = -(-entries // block)
    answer = []
    for b in range(batch):
        for t in range(tokens):
            row, count = score[b, t].tolist()[:seen[b][t]], -(-seen[b][t] // block)
            best = [max(row[j * block:(j + 1) * block]) for j in range(count)]
            if count:
                best[-1] = math.inf
            answer.append(best_of(best, range(count), keep, min(keep, number)))
    return torch.tensor(answer, dtype=torch.int32).view(batch, tokens, -1)


def chosen(*arguments, **options):
    with poisoned():
        found = select_topk(*arguments, **options)
    assert found.dtype == torch.int32
    return found.cpu()


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("tokens, entries, k", [
    (1, 1, 1), (1, 127, 5), (3, 128, 128), (5, 129, 130), (13, 13, 3), (66, 150, 19), (9, 4, 2),
])
def test_equals_a_sort(impl, seed, tokens, entries, k, draw):
    score = draw(seed, 3, tokens, entries)
    assert torch.equal(chosen(score, k, impl=impl), wanted(score, k))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("k", [1, 6, 50])
def test_ties_go_to_the_lowest_index(impl, k, draw):
    score = draw(2, 3, 11, 83).round()  # a handful of values, both zeros among them
    score[0] = 0.0
    score[1, :, ::2] = -0.0
    assert (score[2] == 0).sum() > 100
    assert torch.equal(chosen(score, k, impl=impl), wanted(score, k))
    assert chosen(score, k, impl=impl)[0, -1].tolist() == list(range(k))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("scale", [1e-44, 1.0, 1e30])
def test_scores_that_differ_in_any_bit(impl, scale, draw):
    score = draw(3, 2, 3, 300) * scale  # 1e-44: subnormal, few distinct values
    assert torch.equal(chosen(score, 37, impl=impl), wanted(score, 37))
    near = (torch.arange(300, dtype=torch.int32) * 7919 % 300 + 0x3F800000).view(torch.float32)
    near = near.to(score.device).expand(2, 3, 300) * torch.tensor([[[1.0]], [[-1.0]]]).to(score)
    assert torch.equal(chosen(near, 37, impl=impl), wanted(near, 37))


@pytest.mark.parametrize("impl", IMPLS)
def test_infinities_and_nan(impl, draw):
    score = draw(4, 2, 7, 61)
    score[:, :, 5::9] = torch.inf
    score[:, :, 3::7] = -torch.inf
    score[1, :, 8] = torch.nan
    score[1, :, 9] = -torch.nan
    for k in (9, 45):
        assert torch.equal(chosen(score, k, impl=impl), wanted(score, k))
    nowhere = torch.full((2, 7, 61), -torch.inf, device=score.device)
    assert torch.equal(chosen(nowhere, 5, impl=impl), wanted(nowhere, 5))


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("ratio, start", [(1, 20), (2, 30), (4, None), (3, [150, 0, -40]),
                                          (128, 500)])
def test_groups_lengths_and_nan_in_what_is_not_visible(impl, ratio, start, draw, device):
    score = draw(5, 3, 21, 43)
    seen = counts_of(batch=3, tokens=21, entries=43, ratio=ratio, start=start)
    for b in range(3):
        for t in range(21):
            score[b, t, seen[b][t]:] = torch.nan
    at = torch.tensor(start, device=device) if isinstance(start, list) else start
    found = chosen(score, 6, ratio=ratio, start=at, impl=impl)
    assert torch.equal(found, wanted(score, 6, ratio, start))
    if isinstance(start, list):
        assert (found[2] == -1).all()  # before position 0: nothing is visible


def test_a_group_is_visible_once_it_is_complete():
    score = torch.ones(1, 8, 2)
    found = select_topk(score, 2, ratio=4, start=0, impl="torch")[0].tolist()
    nothing, first, both = [-1, -1], [0, -1], [0, 1]
    assert found == [nothing] * 3 + [first] * 4 + [both]


@pytest.mark.parametrize("impl", IMPLS)
@pytest.mark.parametrize("block, keep, ratio", [(8, 3, 1), (5, 4, 1), (8, 40, 1), (3, 1, 2)])
def test_candidate_blocks_and_the_choice_inside(impl, block, keep, ratio, draw):
    score = (draw(6, 2, 41, 91) * 2).round()
    start = 91 * ratio - 45
    for t in range(41):
        score[:, t, (start + t + 1) // ratio:] = torch.nan
    with poisoned():
        blocks = candidate_blocks(score, keep=keep, block=block, ratio=ratio, start=start,
                                  impl=impl)
    assert torch.equal(blocks.cpu(), wanted_blocks(score, keep, block, ratio, start))
    found = chosen(score, 7, blocks_BTJ=blocks, block=block, ratio=ratio, start=start, impl=impl)
    assert torch.equal(found, wanted(score, 7, ratio, start, blocks, block))


@pytest.mark.parametrize("impl", IMPLS)
def test_the_newest_block_is_pinned(impl, device):
    score = torch.arange(17, 0, -1.0, device=device).expand(1, 17, 17)  # the newest is the worst
    blocks = candidate_blocks(score, keep=1, impl=impl)
    assert blocks[0, 16].tolist() == [2] and blocks[0, 15].tolist() == [1]
    found = select_topk(score, 9, blocks_BTJ=blocks, impl=impl)
    assert found[0, 16].tolist() == [16] + [-1] * 8
    assert found[0, 15].tolist() == [*range(8, 16), -1]


@pytest.mark.parametrize("impl", IMPLS)
def test_a_list_with_gaps(impl, draw, device):
    score = draw(7, 2, 1, 50)
    blocks = torch.tensor([[[0, -1, 3, 6]], [[-1, -1, -1, -1]]], dtype=torch.int32, device=device)
    for k in (4, 17, 30):
        found = chosen(score, k, blocks_BTJ=blocks, impl=impl)
        assert torch.equal(found, wanted(score, k, blocks=blocks))
    assert (found[1] == -1).all()


@pytest.mark.parametrize("impl", IMPLS)
def test_views(impl, draw):
    score = draw(8, 67, 5, 3, 2).permute(2, 1, 0, 3)[..., 1]
    assert not score.is_contiguous()
    assert torch.equal(chosen(score, 12, impl=impl), wanted(score, 12))


@pytest.mark.triton_runs
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit(dtype, draw):
    score = draw(9, 2, 5, 150, dtype=dtype)
    assert torch.equal(chosen(score, 31, impl="triton"), wanted(score, 31))


@pytest.mark.interpreter
def test_several_blocks_of_scores(draw):
    score = draw(10, 1, 60, 2_500).round()  # 1,024 scores at once in the interpreter
    assert torch.equal(chosen(score, 300, impl="triton"), wanted(score, 300))


@pytest.mark.interpreter
def test_offsets_beyond_two_to_the_31(tmp_path, draw):
    stride = 2**30 + 40
    flat = torch.from_file(str(tmp_path / "score.bin"), shared=True, size=2 * stride + 4096,
                           dtype=torch.float16)
    score = flat.as_strided((3, 5, 77), (stride, 150, 1))
    score.copy_(draw(11, 3, 5, 77))
    with bounds.checking_overflow():
        found = chosen(score, 9, impl="triton")
    assert torch.equal(found, wanted(score, 9))


@pytest.mark.interpreter
@pytest.mark.parametrize("k, keep", [(3, None), (40, 2), (3, 2), (40, 50)])
@pytest.mark.parametrize("start, dtype", [(None, torch.float32), ([170, 0, 55], torch.bfloat16)])
def test_counted_is_foretold(k, keep, start, dtype, draw):
    score = draw(12, 3, 70, 83, dtype=dtype)
    sizes = dict(batch=3, tokens=70, entries=83, ratio=2, start=start, itemsize=dtype.itemsize)
    seeing = dict(ratio=2, start=None if start is None else torch.tensor(start))
    blocks = None
    if keep is not None:
        with bounds.counting() as counts:
            blocks = candidate_blocks(score, keep=keep, block=5, **seeing, impl="triton")
        foretold = candidate_blocks.traffic(**sizes, keep=keep, block=5)
        assert (counts.bytes_read, counts.bytes_written) == (
            foretold["bytes_read"], foretold["bytes_written"])
    with bounds.counting() as counts:
        select_topk(score, k, blocks_BTJ=blocks, block=5, **seeing, impl="triton")
    foretold = select_topk.traffic(**sizes, k=k, keep=keep, block=5)
    assert (counts.bytes_read, counts.bytes_written) == (
        foretold["bytes_read"], foretold["bytes_written"])


BLOCKS = torch.zeros(2, 5, 1, dtype=torch.int32)


@pytest.mark.parametrize("options, words", [
    ({"k": 0}, "k is 0; expected a whole number"), ({"k": True}, "k is True"),
    ({"ratio": 0}, "ratio is 0"), ({"block": 1.5}, "block is 1.5"),
    ({"start": 2.0}, "start is float"), ({"impl": "gpu"}, "impl is 'gpu'"),
    ({"start": torch.tensor([3])}, r"start has shape \(1,\); expected \(2,\)"),
    ({"blocks_BTJ": BLOCKS.long()}, "blocks is torch.int64; expected a tensor of int32"),
    ({"blocks_BTJ": BLOCKS[:1]}, r"blocks has shape \(1, 5, 1\); expected \(2, 5, J\)"),
    ({"blocks_BTJ": BLOCKS + 2}, "blocks goes from 2 to 2; expected -1 to 1"),
    ({"score_BTS": torch.zeros(2, 5)}, r"score has shape \(2, 5\), 2 dimensions; expected 3"),
])
def test_errors_name_the_argument(options, words):
    with pytest.raises(ValueError, match=words):
        select_topk(**{"score_BTS": torch.zeros(2, 5, 9), "k": 3, "impl": "torch", **options})
    with pytest.raises(ValueError, match="keep is -1; expected a whole number of at least 1"):
        candidate_blocks(torch.zeros(2, 5, 9), keep=-1)
