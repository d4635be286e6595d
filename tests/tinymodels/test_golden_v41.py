"""Promise 5 for V4.1: reference numbers computed with the released inference code.

`v41_a_nq` has every cache quantiser replaced by the identity: its float64 logits are the judge of
the mechanism, to 1e-9. `v41_a_q` stores rows as they are deployed: its numbers come back from
packed bytes. What else they hold is compared layer by layer, so that a difference has an address.
"""

import json
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tinymodels import convert, residual
from tinymodels.attention import csa, indexer
from tinymodels.attention.indexer import index_scores
from tinymodels.cache import groups
from tinymodels.moe import watch_routing
from tinymodels.transformer import Transformer

GOLDEN = Path(__file__).parents[1] / "golden"
LENGTH, PROMPT, WINDOW = 41, 23, 8
ONE_PASS, DECODE = [LENGTH], [PROMPT] + [1] * (LENGTH - PROMPT)
ODD = [1, 6, 2, 9, 5, 17, 1]
WAYS = {"prefill": ONE_PASS, "decode": DECODE}  # the reference's names
OWNERS, CHOOSERS, FAR = (1, 4), (1, 4, 6), range(1, 8)


@cache
def reference(name):
    info = json.loads((GOLDEN / f"{name}.json").read_text())
    config = convert.config_from(info["config"] | {"model_type": "deepseek_v4_1"})
    return config.with_(row="fp4"), load_file(GOLDEN / f"{name}.safetensors")


@cache
def model_of(name, dtype=torch.float64):
    config, _ = reference(name)
    model = Transformer(config).to(dtype).requires_grad_(False)
    weights = load_file(GOLDEN / "v41_a_weights.safetensors")
    convert.load(model, weights, source="deepseek_v4_1")
    return model


def logits_of(name, sizes, storage, dtype=torch.float64):
    model, tokens = model_of(name, dtype), reference(name)[1]["token_ids"]
    memory = model.new_cache(1, LENGTH, storage)
    return torch.cat([model(part, memory) for part in tokens.split(sizes, dim=1)], dim=1), memory


def error(got, name, tensor):
    return (got.double() - reference(name)[1][tensor].double()).abs().max().item()


# ------------------------------------------------------------------ logits


def test_float64_without_a_cache():
    got = model_of("v41_a_nq")(reference("v41_a_nq")[1]["token_ids"])
    assert error(got, "v41_a_nq", "logits_prefill_f64") < 1e-12  # measured: 9e-15
    assert reference("v41_a_nq")[1]["logits_prefill_f64"].std() > 0.9


@pytest.mark.parametrize("sizes", [ONE_PASS, DECODE, ODD])
def test_float64_with_a_cache(sizes):
    got, _ = logits_of("v41_a_nq", sizes, "float64")
    assert error(got, "v41_a_nq", "logits_decode_f64") < 1e-12
    # The released decode scores an open group's step against another layer's keys.
    assert error(got, "v41_a_nq", "logits_decode_unfixed") > 1


@pytest.mark.parametrize("sizes", [ONE_PASS, DECODE])
def test_float32(sizes):
    got, _ = logits_of("v41_a_nq", sizes, "float32", torch.float32)
    assert error(got, "v41_a_nq", "logits_prefill") < 5e-5
    assert error(got, "v41_a_nq", "logits_prefill_f64") < 5e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [ONE_PASS, DECODE, ODD])
def test_from_packed_rows(sizes, dtype):
    got, _ = logits_of("v41_a_q", sizes, "packed", dtype)
    limit = 1e-12 if dtype is torch.float64 else 5e-5  # no code flips
    assert error(got, "v41_a_q", "logits_prefill_f64") < limit
    assert error(got, "v41_a_q", "logits_decode") < 5e-5


def test_the_row_format_can_be_given_to_the_cache():
    config, tensors = reference("v41_a_q")
    model = Transformer(config.with_(row="bf16")).double().requires_grad_(False)
    model.load_state_dict(model_of("v41_a_q", torch.float64).state_dict())
    got = model(tensors["token_ids"], model.new_cache(1, LENGTH, "packed", row="fp4"))
    assert error(got, "v41_a_q", "logits_prefill_f64") < 1e-12


def test_rounding_shows():
    """Else the test above would say nothing about rows."""
    got, _ = logits_of("v41_a_q", ONE_PASS, "float64")
    assert error(got, "v41_a_q", "logits_prefill_f64") > 0.1


# ------------------------------------------------------------------ layer by layer


@cache
def watched(name, way):
    """What every layer took and gave over a cache, by the reference's names. way: of WAYS."""
    model = model_of(name)
    passes = []  # one dict for each piece of the text

    def keep(i):
        layer = model.layers[i]

        def attention(module, inputs, output):
            seen = passes[-1]
            seen[f"layers.{i}.attn_in"], seen[f"layers.{i}.attn_out"] = inputs[0], output[0]
            if i in CHOOSERS:
                x_BTX = inputs[0]
                asked = module.indexer.ask(x_BTX, module.query_latent(x_BTX), output[1])
                seen[f"layers.{i}.index_score"] = index_scores(*asked)
            if i in FAR:
                seen[f"layers.{i}.topk"] = output[1].far.choice_BTk
            if i == 4:
                seen["candidates"] = output[1].far.pool_BTS

        def ffn(_, inputs, output):
            seen = passes[-1]
            seen[f"layers.{i}.ffn_in"], seen[f"layers.{i}.ffn_out"] = inputs[0], output

        def block(module, inputs, output):
            seen = passes[-1]
            seen[f"layers.{i}.block_out"] = output[0].copies_BTNX
            if i == 0:
                mixes = module.attention_residual.mixes(inputs[0].copies_BTNX)
                for part, value in zip(("pre", "post", "comb"), mixes, strict=True):
                    seen[f"layers.0.hc_attn_{part}"] = value

        return (
            layer.attention.register_forward_hook(attention),
            layer.ffn.register_forward_hook(ffn),
            layer.register_forward_hook(block),
        )

    hooks = [hook for i in range(8) for hook in keep(i)]
    hooks.append(
        model.norm.register_forward_pre_hook(lambda _, x: passes[-1].update(final_hidden=x[0]))
    )
    memory = model.new_cache(1, LENGTH, "float64" if name == "v41_a_nq" else "packed")
    with watch_routing(model) as routing:
        for piece in reference(name)[1]["token_ids"].split(WAYS[way], dim=1):
            passes.append({})
            model(piece, memory)
    for hook in hooks:
        hook.remove()
    for i in range(8):
        for seen, chosen in zip(passes, routing[f"layers.{i}.ffn.router"], strict=True):
            seen[f"layers.{i}.moe_indices"] = chosen.experts_BTk
            seen[f"layers.{i}.moe_weights"] = chosen.weights_BTk
    whole = {tensor: joined([seen[tensor] for seen in passes]) for tensor in passes[0]}
    for i in range(8):
        whole |= {f"layers.{i}.{k}": v for k, v in in_memory(memory.layers[i]).items()}
    return whole


def joined(pieces):
    """Along the tokens. An early piece sees fewer entries: what it lacks is filled as unseen."""
    most = max(piece.shape[-1] for piece in pieces)
    kind = pieces[0].dtype
    unseen = -1 if kind is torch.int64 else False if kind is torch.bool else -torch.inf
    wide = [nn.functional.pad(p, (0, most - p.shape[-1]), value=unseen) for p in pieces]
    return torch.cat(wide, dim=1)


def in_memory(layer):
    slots = [p % WINDOW for p in range(LENGTH - WINDOW, LENGTH)]
    ring = torch.empty(1, WINDOW, 64, dtype=torch.float64)
    ring[:, slots] = groups.read(layer.window)
    kept = {"window_kv_ring": ring}
    if layer.main is not None:
        kept |= {"compress_kv": groups.read(layer.main), "index_k": groups.read(layer.index)}
    if layer.open is not None:
        waiting = layer.open.view(1, 2, 2, 64)[:, :, :1]  # 41 tokens: one waits, in slot 0
        kept |= dict(zip(("compressor_tail_kv", "compressor_tail_score"), waiting.unbind(1)))
    return kept


def named(kind):
    return [
        name.removeprefix("diag.prefill.")
        for name in reference("v41_a_nq")[1]
        if name.startswith("diag.prefill.") and name.endswith(kind)
    ]


NUMBERS = [
    "attn_in", "attn_out", "ffn_in", "ffn_out", "block_out", "final_hidden", "compress_kv",
    "index_k", "window_kv_ring", "compressor_tail_kv", "compressor_tail_score", "moe_weights",
    "hc_attn_pre", "hc_attn_post", "hc_attn_comb",
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["v41_a_nq", "v41_a_q"])
@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_layer_by_layer(name, kind, way):
    assert named(kind)
    for tensor in named(kind):
        got, want = watched(name, way)[tensor], reference(name)[1][f"diag.{way}.{tensor}"]
        assert got.shape == want.shape, tensor
        torch.testing.assert_close(got.float(), want, rtol=1e-5, atol=2e-5, msg=tensor)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["v41_a_nq", "v41_a_q"])
def test_every_choice(name, way):
    def pairs(kind, layers):
        for i in layers:
            tensor = f"layers.{i}.{kind}"
            yield watched(name, way)[tensor], reference(name)[1][f"diag.{way}.{tensor}"]

    for kind, layers in (("topk", FAR), ("moe_indices", range(8))):
        for got, want in pairs(kind, layers):
            assert torch.equal(got, want.long())
    for got, want in pairs("index_score", CHOOSERS):
        visible = want.isfinite()
        torch.testing.assert_close(got[visible].float(), want[visible], rtol=1e-5, atol=2e-5)
    # The reference marks whole blocks, those of the future too; here only what is visible.
    blocks = reference(name)[1][f"diag.{way}.candidates"]
    assert torch.equal(watched(name, way)["candidates"], blocks.tril())
    assert not torch.equal(blocks.tril(), torch.ones_like(blocks).tril())


# ------------------------------------------------------------------ faults it must see


def half_built_visible(patch):
    patch.setattr(
        indexer, "complete_groups",
        lambda step, entries, m: torch.arange(entries) < ((step.positions_T + m) // m)[:, None],
    )  # fmt: skip


def position_of_the_last_token(patch):
    right = csa.Compressor.forward

    def wrong(self, x, step, state):
        latent, positions = right(self, x, step, state)
        return latent, positions + self.ratio - 1

    patch.setattr(csa.Compressor, "forward", wrong)


def keys_of_this_chunk_only(patch):
    right = groups.extend

    def wrong(store, entry):
        rows = right(store, entry)
        if store.layout.name != "MXFP4 index key":
            return rows
        return torch.cat([torch.zeros_like(rows[:, entry.shape[1] :]), entry], dim=1)

    patch.setattr(groups, "extend", wrong)


def comb_transposed(patch):
    right = residual.spread_and_mix

    def wrong(copies, mixes, found):
        return right(copies, mixes._replace(comb_BTNN=mixes.comb_BTNN.transpose(-1, -2)), found)

    patch.setattr(residual, "spread_and_mix", wrong)


def pre_not_delayed(patch):
    patch.setattr(
        residual.SinglePassHyper, "read",
        lambda self, s: residual.Hyper.read(self, s.copies_BTNX),
    )  # fmt: skip


def query_norm_kept_from_v4(patch):
    for layer in model_of("v41_a_nq", torch.float64).layers:
        patch.setattr(layer.attention, "query_heads_normed", True)


def no_inverse_rotation(patch):
    from tinymodels.attention import sliding

    right = sliding.rotate_tail
    patch.setattr(
        sliding, "rotate_tail",
        lambda x, turn, back=False: x if back else right(x, turn),
    )  # fmt: skip


FAULTS = [
    half_built_visible, position_of_the_last_token, keys_of_this_chunk_only, comb_transposed,
    pre_not_delayed, query_norm_kept_from_v4, no_inverse_rotation,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_seen(fault, monkeypatch):
    fault(monkeypatch)
    got, _ = logits_of("v41_a_nq", DECODE, "float64")
    assert error(got, "v41_a_nq", "logits_decode_f64") > 1e-2
