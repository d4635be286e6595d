"""Owners and borrowers (CSA2): who reads what, and the candidate blocks."""

from dataclasses import replace

import pytest
import torch

from tinymodels.attention.csa2 import CSA2
from tinymodels.attention.indexer import candidate_blocks, divergence
from tinymodels.config import CSA2 as Config
from tinymodels.config import Candidates, Indexer, Rope
from tinymodels.presets import tiny_v4, tiny_v4_1
from tinymodels.step import Step
from tinymodels.transformer import Transformer

X, EPS, LENGTH = 13, 1e-6, 19
SHAPES = dict(heads=6, head_dim=14, rope_dim=6, q_rank=11, out_groups=3, out_rank=5, window=4)
INDEXER = Indexer(heads=5, dim=10, top_k=3, rope_dim=6)


def layer(mode, number, seed=0, ratio=1, **more):
    borrows = {} if mode == "full" else {"kv_source": 0}
    if mode == "reuse":
        borrows["index_source"] = 0
    else:
        borrows["indexer"] = INDEXER
    config = Config(mode=mode, ratio=ratio, rope=Rope(6), **SHAPES, **borrows, **more)
    module = CSA2(X, config, EPS, number)
    draw = torch.Generator().manual_seed(seed)
    for p in module.parameters():
        p.data = torch.randn(p.shape, generator=draw, dtype=torch.float64) * 0.7
    return module.requires_grad_(False)


def inputs(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(2, LENGTH, X, generator=draw, dtype=torch.float64)


def step_of(start=0):
    return Step(torch.zeros(2, LENGTH, dtype=torch.int64), start)


# ------------------------------------------------------------------ candidate blocks


def pool(scores, visible, block, keep):
    score = torch.tensor(scores, dtype=torch.float64).view(1, 1, -1)
    seen = torch.arange(len(scores)).view(1, -1) < visible
    return candidate_blocks(score, seen, block, keep)[0, 0].nonzero().flatten().tolist()


def test_the_block_of_the_newest_always_stays():
    falling = [float(-i) for i in range(20)]
    assert pool(falling, 17, 8, 1) == [16]
    assert pool(falling, 16, 8, 1) == list(range(8, 16))
    assert pool(falling, 17, 8, 2) == [*range(8), 16]
    assert pool(falling, 17, 8, 9) == list(range(17))
    assert pool(falling, 0, 8, 2) == []
    assert pool(falling, 1, 8, 2) == [0]


def test_a_block_is_as_good_as_its_best_visible_entry():
    scores = [0, 9, 0, 5, 5, 5, 1, 1, 1, 0, 0, 99]
    assert pool(scores, 11, 3, 2) == [0, 1, 2, 9, 10]  # 99 lies in the future
    assert pool(scores, 12, 3, 2) == [0, 1, 2, 9, 10, 11]
    assert pool([3, 0, 3, 0, 3, 0, 0], 7, 2, 3) == [0, 1, 2, 3, 6]  # equal: the first blocks


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("entries", "block", "keep"), [(0, 3, 2), (1, 3, 2), (23, 4, 3), (9, 10, 1)]
)
def test_blocks_by_a_loop(entries, block, keep, seed):
    draw = torch.Generator().manual_seed(seed)
    score = torch.randn(2, 7, entries, generator=draw)
    visible = torch.arange(entries) < torch.arange(entries - 6, entries + 1).clamp(min=0)[:, None]
    got = candidate_blocks(score, visible, block, keep)
    for b in range(2):
        for t in range(7):
            n = int(visible[t].sum())
            blocks = [list(range(i, min(i + block, n))) for i in range(0, n, block)]
            best = lambda rows, b=b, t=t: max(score[b, t, j].item() for j in rows)  # noqa: E731
            older = sorted(blocks[:-1], key=best, reverse=True)[: keep - 1]
            want = sorted(j for rows in [*older, *blocks[-1:]] for j in rows)
            assert got[b, t].nonzero().flatten().tolist() == want


# ------------------------------------------------------------------ who reads what


def test_reuse_takes_entries_and_choice_as_they_are():
    owner, borrower = layer("full", 0, 1), layer("reuse", 1, 2)
    _, published = owner(inputs(), step_of())
    _, after = borrower(inputs(1), published)
    assert after is published
    assert not hasattr(borrower, "indexer") and not hasattr(borrower, "compressor")


def test_reindex_chooses_anew_among_the_same_keys():
    owner, chooser = layer("full", 0, 1), layer("reindex", 2, 2)
    _, published = owner(inputs(), step_of())
    _, after = chooser(inputs(1), published)
    assert after.far.entry_BSD is published.far.entry_BSD
    assert after.far.key_BSD is published.far.key_BSD
    assert not torch.equal(after.far.choice_BTk, published.far.choice_BTk)
    assert not hasattr(chooser.indexer, "key")


def test_candidates_bind_later_layers_and_not_their_source():
    candidates = Candidates(source=0, block=2, keep=2)
    owner = layer("full", 0, 1, candidates=candidates)
    chooser = layer("reindex", 2, 2, candidates=candidates)
    _, published = owner(inputs(), step_of())
    free = layer("full", 0, 1)(inputs(), step_of())[1]
    assert torch.equal(published.far.choice_BTk, free.far.choice_BTk)
    pool_BTS = published.far.pool_BTS
    inside = pool_BTS.gather(-1, published.far.choice_BTk.clamp(min=0))
    assert not inside[published.far.choice_BTk >= 0].all()  # the source looks outside its blocks
    _, after = chooser(inputs(1), published)
    choice = after.far.choice_BTk
    assert pool_BTS.gather(-1, choice.clamp(min=0))[choice >= 0].all()
    _, unbound = layer("reindex", 2, 2)(inputs(1), published)
    assert not torch.equal(choice, unbound.far.choice_BTk)


@pytest.mark.parametrize("ratio", [1, 2])
def test_choices_are_in_order_and_complete(ratio):
    _, step = layer("full", 0, 3, ratio)(inputs(), step_of())
    choice = step.far.choice_BTk
    for t in range(LENGTH):
        visible = (t + 1) // ratio
        for row in choice[:, t].tolist():
            taken = [j for j in row if j >= 0]
            assert len(taken) == min(INDEXER.top_k, visible)
            assert taken == sorted(taken) and all(j < visible for j in taken)
            assert row == taken + [-1] * (len(row) - len(taken))


def test_keys_come_from_the_latent_before_its_rotation():
    owner = layer("full", 0, 1, ratio=2)
    step = owner.publish(inputs(), step_of())
    latent, positions = owner.compressor(inputs(), step_of(), None)
    want = owner.indexer.keys(latent, positions)
    assert torch.equal(step.far.key_BSD, want)
    moved = owner.publish(inputs(), step_of(start=2))  # the same tokens, later: keys turn
    assert not torch.equal(moved.far.key_BSD, want)


def test_a_borrower_without_its_owner_says_so():
    borrower = layer("reuse", 3)
    with pytest.raises(ValueError, match="layer 3 reads the entries of layer 0, which has not run"):
        borrower(inputs(), step_of())
    _, step = layer("full", 2)(inputs(), step_of())
    with pytest.raises(ValueError, match="layer 3 reads the entries of layer 0"):
        borrower(inputs(), step)


def test_two_passes_never_mix():
    """What is shared travels in the step: a pass between two others leaves no trace."""
    model = Transformer(tiny_v4_1(), seed=1).double().requires_grad_(False)
    draw = torch.Generator().manual_seed(0)
    first, second = (torch.randint(256, (2, 30), generator=draw) for _ in range(2))
    alone = model(first)
    memory = model.new_cache(2, 30, "float64")
    parts = []
    for part in first.split(7, dim=1):
        parts.append(model(part, memory))
        model(second)
    torch.testing.assert_close(torch.cat(parts, dim=1), alone, rtol=0, atol=1e-10)


def test_entries_are_published_once():
    owner = layer("full", 0)
    published = owner.publish(inputs(), step_of())
    again = owner.publish(inputs(5), published)
    assert again is published
    other = owner.publish(inputs(5), replace(published, far=None))
    assert not torch.equal(other.far.entry_BSD, published.far.entry_BSD)


@pytest.mark.parametrize("preset", [tiny_v4, tiny_v4_1])
def test_every_indexer_learns_from_a_loss_of_its_own(preset):
    model = Transformer(preset(), seed=1)
    logits, losses = model.with_losses(torch.randint(256, (2, 40)))
    assert len(losses) == 3  # CSA: three layers; CSA2: two owners and one that chooses anew
    assert all(loss.isfinite() and loss > 0 for loss in losses)
    sum(losses).backward()
    moved = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    indexers = {name for name, _ in model.named_parameters() if ".indexer." in name}
    assert moved == indexers
    logits.sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_divergence_is_that_of_the_two_distributions():
    score, share = torch.randn(2, 5, 4).double(), torch.rand(2, 5, 4).double()
    visible = torch.arange(4) < torch.arange(5)[:, None]  # the first query sees nothing
    share = share * visible
    want = []
    for b in range(2):
        for t in range(1, 5):
            p = share[b, t, :t] / share[b, t, :t].sum()
            q = score[b, t, :t].softmax(-1)
            want.append((p * (p / q).log()).sum())
    got = divergence(score.requires_grad_(), share, visible)
    assert got.shape == (2, 5) and not got[:, 0].any()
    torch.testing.assert_close(got.mean(), sum(want) / 10, rtol=0, atol=1e-12)
    got.mean().backward()
    assert score.grad.isfinite().all() and not score.grad[:, 0].any()


@pytest.mark.parametrize("preset", [tiny_v4, tiny_v4_1])
def test_bfloat16_runs_and_comes_close(preset):
    model = Transformer(preset(), seed=1).requires_grad_(False)
    tokens = torch.randint(256, (2, 40), generator=torch.Generator().manual_seed(0))
    want = model(tokens)
    model = model.bfloat16()
    memory = model.new_cache(2, 40)
    got = torch.cat([model(part, memory) for part in tokens.split([33, 1, 6], dim=1)], dim=1)
    assert got.dtype is torch.bfloat16
    assert (got.float() - want).abs().mean() < 0.1 * want.std()
