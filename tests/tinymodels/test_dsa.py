"""DSA: what the indexer chooses, that nothing else is read, and how it learns to choose."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tinymodels.attention import indexer
from tinymodels.attention.dsa import DSA
from tinymodels.attention.indexer import chosen, hadamard, index_scores, top_k
from tinymodels.attention.mla import MLA
from tinymodels.attention.rope import rotate
from tinymodels.config import MLA as Config
from tinymodels.config import Indexer, Rope
from tinymodels.parts import Parts
from tinymodels.presets import tiny_v3_2
from tinymodels.step import Step
from tinymodels.transformer import Transformer

WIDTH = 33


def config(k: int, dim: int = 10, heads: int = 3) -> Config:
    return Config(
        heads=5,
        nope_dim=7,
        rope_dim=6,
        v_dim=9,
        kv_rank=11,
        q_rank=13,
        rope=Rope(6),
        indexer=Indexer(heads=heads, dim=dim, top_k=k, rope_dim=6, fmt="fp8"),
    )


def made(k: int, seed: int, **sizes) -> DSA:
    draw = torch.Generator().manual_seed(seed)
    layer = DSA(WIDTH, config(k, **sizes), Parts()).double()
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=draw, dtype=p.dtype) * 0.4 + (p.dim() == 1))
    return layer


def states(length: int, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(2, length, WIDTH, generator=draw, dtype=torch.float64)


def step(length: int, **more) -> Step:
    return Step(torch.zeros(2, length, dtype=torch.int64), **more)


# ------------------------------------------------------------------ choosing


@settings(max_examples=60, deadline=None)
@given(data=st.data(), entries=st.integers(1, 30), k=st.integers(1, 12))
def test_top_k_is_a_sorted_list_in_python(data, entries, k):
    """With many ties: of equal scores the lowest index wins. Position order; -1 fills up."""
    scores = data.draw(st.lists(st.integers(-2, 2), min_size=entries, max_size=entries))
    seen = data.draw(st.lists(st.booleans(), min_size=entries, max_size=entries))
    best = sorted((i for i in range(entries) if seen[i]), key=lambda i: -scores[i])[:k]
    width = min(k, entries)
    want = sorted(best) if len(best) == width else [*sorted(best), *[-1] * (width - len(best))]
    got = top_k(torch.tensor([scores]).double(), torch.tensor([seen]), k)[0].tolist()
    assert sorted(got) == sorted(want) and [i for i in got if i >= 0] == sorted(best)
    mask = chosen(torch.tensor([got]), entries)[0]
    assert mask.nonzero().flatten().tolist() == sorted(best)


def test_scores_are_the_formula():
    draw = torch.Generator().manual_seed(0)
    query, weight, key = (
        torch.randn(shape, generator=draw, dtype=torch.float64)
        for shape in ((2, 5, 3, 7), (2, 5, 3), (2, 9, 7))
    )
    got = index_scores(query, weight, key)
    for b, t, s in ((0, 0, 0), (1, 4, 8), (0, 3, 5)):
        want = sum(weight[b, t, i] * max(0.0, float(query[b, t, i] @ key[b, s])) for i in range(3))
        assert got[b, t, s].item() == pytest.approx(float(want), abs=1e-12)


def test_hadamard_keeps_dot_products_and_spreads_an_outlier():
    a, b = states(3, 1)[..., :16], states(3, 2)[..., :16]
    dots = (hadamard(a) * hadamard(b)).sum(-1)
    torch.testing.assert_close(dots, (a * b).sum(-1), rtol=0, atol=1e-12)
    assert hadamard(torch.eye(8)[3]).abs().tolist() == pytest.approx([8**-0.5] * 8)
    with pytest.raises(ValueError, match="12; it must be a power of two"):
        hadamard(torch.zeros(2, 12))


@pytest.mark.parametrize(("dim", "turns"), [(10, False), (16, True)])
def test_index_rows_and_their_scores(dim, turns):
    """Keys are turned to their place in halves, then by Hadamard where the size allows; the
    scores are those without that second turn, times 1 / sqrt(heads x dim)."""
    layer, x = made(4, 3, dim=dim), states(9, 4)
    query, weight, rows = layer.indexer.project(x, layer.query_latent(x), step(9))
    halves = Rope(6, pairs="half")
    key = layer.indexer.key_norm(layer.indexer.key(x))
    own = layer.indexer.query(layer.query_latent(x)).view(2, 9, 3, dim)
    key, own = (
        torch.cat([rotate(part[..., :6], halves, torch.arange(9)), part[..., 6:]], dim=-1)
        for part in (key, own)
    )
    want_row = hadamard(key) if turns else key
    torch.testing.assert_close(rows["index"], want_row, rtol=0, atol=1e-12)
    want = index_scores(own, layer.indexer.head_weight(x), key) / (3 * dim) ** 0.5
    got = index_scores(query, weight, rows["index"])
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)


# ------------------------------------------------------------------ reading what was chosen


@pytest.mark.parametrize("length", [1, 6, 7, 8, 20])
def test_with_room_for_all_it_is_mla(length):
    layer, x = made(20, 5), states(length, 6)
    plain = MLA(WIDTH, config(20), Parts()).double()
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if "indexer" not in k})
    torch.testing.assert_close(
        layer(x, step(length))[0], plain(x, step(length))[0], rtol=0, atol=1e-12
    )
    if length > 7:
        layer.indexer.config = config(7).indexer
        layer.config = config(7)
        assert (layer(x, step(length))[0] - plain(x, step(length))[0])[:, :7].abs().max() < 1e-12
        assert (layer(x, step(length))[0] - plain(x, step(length))[0])[:, 7:].abs().max() > 1e-3


def test_each_query_reads_its_chosen_rows_and_no_others():
    layer, x, k = made(4, 7), states(15, 8), 4
    query, rows = layer.project(x, step(15))
    index_query, weight, keys = layer.indexer.project(x, layer.query_latent(x), step(15))
    got, _ = layer(x, step(15))
    scores = index_scores(index_query, weight, keys["index"])
    for b, t in ((0, 2), (1, 3), (0, 4), (1, 14)):
        best = sorted(scores[b, t, : t + 1].argsort(descending=True, stable=True)[:k].tolist())
        assert len(best) == min(k, t + 1)
        own = {name: row[b : b + 1, best] for name, row in rows.items()}
        alone = tuple(part[b : b + 1, t : t + 1] for part in query)
        want = layer.attend(alone, own, torch.ones(1, len(best), dtype=torch.bool))
        torch.testing.assert_close(got[b, t], want[0, 0], rtol=0, atol=1e-10)


def test_a_packed_cache_rounds_queries_as_it_rounds_keys(monkeypatch):
    """FP8 meets FP8, as where it is deployed; without a cache nothing is rounded."""
    model = Transformer(tiny_v3_2(), seed=2).requires_grad_(False)
    layer, memory = model.layers[0].attention, model.new_cache(2, 9)
    x = torch.randn(2, 9, 64, generator=torch.Generator().manual_seed(0))
    scored = []

    def watched(query, weight, key):
        scored.append((query, key))
        return index_scores(query, weight, key)

    monkeypatch.setattr(indexer, "index_scores", watched)
    layer(x, step(9))
    layer(x, step(9), memory.layers[0])
    (exact, exact_key), (query, key) = scored
    for whole, rounded in ((exact, query), (exact_key, key)):
        want = memory.layers[0].index.as_stored({"index": whole})["index"]
        assert torch.equal(rounded, want) and not torch.equal(rounded, whole)


# ------------------------------------------------------------------ learning to choose


def test_the_lesson_is_the_kl_distance_from_all_heads_together():
    layer, x = made(4, 9).requires_grad_(False), states(11, 10)
    _, after = layer(x, step(11, losses=()))
    query, rows = layer.project(x, step(11))
    causal = torch.ones(11, 11, dtype=torch.bool).tril()
    heads = layer.look(query, rows, causal)
    index_query, weight, keys = layer.indexer.project(x, layer.query_latent(x), step(11))
    scores = index_scores(index_query, weight, keys["index"])
    total = 0.0
    for b in range(2):
        for t in range(11):
            target = heads[b, :, t, : t + 1].sum(0)
            log = scores[b, t, : t + 1].log_softmax(-1)
            total += float(F.kl_div(log, target / target.sum(), reduction="sum"))
    assert len(after.losses) == 1
    assert after.losses[0].item() == pytest.approx(total / 22, abs=1e-10)


def test_the_lesson_moves_the_indexer_alone_and_the_text_all_but_it():
    model = Transformer(tiny_v3_2(), seed=1)
    tokens = torch.randint(256, (2, 30), generator=torch.Generator().manual_seed(0))
    logits, losses = model.with_losses(tokens)
    assert len(losses) == len(model.layers)
    sum(losses).backward(retain_graph=True)
    moved = {n for n, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert moved and all(".indexer." in n for n in moved)
    assert len(moved) == sum(".indexer." in n for n, _ in model.named_parameters())
    model.zero_grad(set_to_none=True)
    F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    untouched = {n for n, p in model.named_parameters() if p.grad is None}
    assert untouched == {n for n, _ in model.named_parameters() if ".indexer." in n}


def test_an_indexer_learns_what_attention_looks_at():
    """Its loss falls, and it finds more of the rows that all heads together look at most."""
    layer, k = made(5, 11, heads=7, dim=16), 5
    x = torch.cat([states(24, seed) for seed in range(3)])
    tokens = torch.zeros(len(x), 24, dtype=torch.int64)
    causal = torch.ones(24, 24, dtype=torch.bool).tril()
    target = layer.look(*layer.project(x, Step(tokens)), causal).mean(1)
    true = chosen(top_k(target, causal, k), 24)

    def recall() -> float:
        query, weight, keys = layer.indexer.project(x, layer.query_latent(x), Step(tokens))
        found = chosen(top_k(index_scores(query, weight, keys["index"]), causal, k), 24)
        late = slice(2 * k, None)  # where there is something to leave out
        return ((found & true)[:, late].sum() / true[:, late].sum()).item()

    before, losses = recall(), []
    optimiser = torch.optim.Adam(layer.indexer.parameters(), lr=0.02)
    for _ in range(40):
        loss = layer(x, Step(tokens, losses=()))[1].losses[0]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0], losses[:: len(losses) - 1]
    assert recall() > before + 0.15, (before, recall())
