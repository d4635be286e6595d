"""Every tiny model through the kernels: the same logits, and no kernel left out.

In the interpreter the runs are short. On a GPU the same tests run compiled, and each model
trains there, too.
"""

import contextlib

import pytest
import torch
from torch.nn.functional import cross_entropy

from kernels import backend, bounds
from tinymodels import presets
from tinymodels.parts import Parts
from tinymodels.transformer import Transformer

EXPERTS = {"_up", "_down", "_add_up"}
LATENT = {"_attend_latent", "_merge_splits", *EXPERTS}
CHOOSING = {"_attend_chosen", "_score_tile", "_select"}
PACKED = {"_pack", "_unpack"}
# Tokens of the prompt: not all entries are chosen then, and the token after it completes a group.
# And the kernels of each model.
MODELS = {
    "tiny_v1": (7, {"_attend_block", "_attend_split", "_merge_splits"}),
    "tiny_v2": (7, LATENT),
    "tiny_v2_lite": (7, LATENT),
    "tiny_v3": (7, LATENT),
    "tiny_v3_2": (27, {*CHOOSING, *EXPERTS}),
    "tiny_v4": (39, {*CHOOSING, *EXPERTS, "_pool"}),
    "tiny_v4_1": (27, {*CHOOSING, *EXPERTS, "_pool", "_best_of_blocks", "_mix", "_mixes"}),
}
every_model = pytest.mark.parametrize("name", MODELS)
on_a_gpu = pytest.mark.skipif(backend.current().name != "cuda", reason="trains on a GPU")


@pytest.fixture
def model(device):
    """A model whose weights are large enough that every part of it matters."""
    def make(name, parts=None):
        made = Transformer(getattr(presets, name)(), parts, seed=3)
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for weight in made.parameters():
                if weight.dim() > 1:
                    weight.mul_(5)
                else:
                    weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
        return made.to(device)

    return make


@pytest.fixture
def tokens(device):
    def draw(count, batch=2):
        generator = torch.Generator().manual_seed(1)
        return torch.randint(256, (batch, count), generator=generator).to(device)

    return draw


@contextlib.contextmanager
def launched():
    """The names of the kernels launched inside."""
    names = set()
    if backend.current().name == "interpret":
        with bounds.counting() as counts:
            yield names
        names |= {kernel for kernel, _ in counts.rows}
        return
    from triton.runtime.jit import JITFunction

    as_usual = JITFunction.run

    def run(self, *arguments, **options):
        names.add(self.fn.__name__)
        return as_usual(self, *arguments, **options)

    JITFunction.run = run
    try:
        yield names
    finally:
        JITFunction.run = as_usual


def read(model, tokens_BT, kernels, storage="float32"):
    """Logits of a prompt and of one token after it."""
    cache = model.new_cache(*tokens_BT.shape, storage=storage)
    prompt = model(tokens_BT[:, :-1], cache, kernels=kernels)
    return torch.cat([prompt, model(tokens_BT[:, -1:], cache, kernels=kernels)], 1), cache


@pytest.mark.triton_runs
@every_model
def test_the_same_logits_and_every_kernel_launched(name, model, tokens):
    length, wanted = MODELS[name]
    made = model(name)
    text = tokens(length + 1)
    logits, _ = read(made, text, "torch")
    with launched() as names:
        by_kernels, _ = read(made, text, "triton")
    assert logits.abs().max() > 1
    torch.testing.assert_close(by_kernels, logits, rtol=0, atol=1e-5)
    assert names == wanted


@pytest.mark.triton_runs
def test_rows_of_v4_1_are_attended_to_as_they_lie(model, tokens):
    """No far or near row is unpacked: only index keys are, and queries rounded as keys are."""
    made, text = model("tiny_v4_1"), tokens(28)
    parts = text.split([10, 17, 1], dim=1)  # a prompt, a second one behind it, and one token
    stored, kept = (made.new_cache(*text.shape) for _ in range(2))
    logits = [made(part, stored, kernels="torch") for part in parts]
    with launched() as names:
        by_kernels = [made(part, kept, kernels="triton") for part in parts]
    assert "_attend_packed" in names and "_attend_chosen" not in names
    for theirs, ours in zip(stored.layers, kept.layers):
        for wanted, store in zip(theirs.stores(), ours.stores()):
            assert torch.equal(wanted.packed(), store.packed())  # no tie was rounded apart
            assert not store.as_bytes
    torch.testing.assert_close(torch.cat(by_kernels, 1), torch.cat(logits, 1), rtol=0, atol=1e-5)


@pytest.mark.triton_runs
@pytest.mark.parametrize("row", ["bf16", "fp8"])
def test_other_rows_of_v4_1_are_unpacked_first(row, model, tokens):
    made, text = model("tiny_v4_1"), tokens(5, batch=1)
    cache = made.new_cache(1, 5, row=row)
    with launched() as names:
        made(text, cache, kernels="triton")
    assert "_attend_chosen" in names and "_attend_packed" not in names


@pytest.mark.triton_runs
@pytest.mark.parametrize("name", ["tiny_v3_2", "tiny_v4", "tiny_v4_1"])
def test_rows_are_packed_by_the_kernel(name, model, tokens):
    made, text = model(name), tokens(3)
    caches = [made.new_cache(*text.shape) for _ in range(2)]
    made(text, caches[0], kernels="torch")
    with launched() as names:
        made(text, caches[1], kernels="triton")
    assert names >= PACKED
    same = []
    for theirs, ours in zip(*(cache.layers for cache in caches)):
        for wanted, store in zip(theirs.stores(), ours.stores()):
            for field, numbers in wanted.read().items():
                same.append(torch.isclose(store.read()[field], numbers, atol=1e-5).flatten())
    # A number that lies between two codes may go either way: sums have another order.
    assert torch.cat(same).double().mean() > 0.995


@pytest.mark.triton_runs
@pytest.mark.parametrize("name", ["tiny_v1", "tiny_v3", "tiny_v4_1"])
def test_where_no_kernel_can_answer_it_is_torch(name, model, tokens):
    made = model(name)
    with launched() as names:
        made(tokens(5), kernels="triton").sum().backward()  # a gradient is wanted
        assert made.embed.weight.grad.abs().max() > 0
        wide = made.double()
        logits, _ = read(wide, tokens(6), "triton", "float64")
    assert not names
    assert torch.equal(logits, read(wide, tokens(6), "torch", "float64")[0])


@pytest.mark.triton_runs
def test_a_part_of_ones_own_is_not_passed_over(model, tokens):
    def half(gate, up, limit=None):
        return gate * up / 2

    made = model("tiny_v2", Parts(swiglu=half))
    with launched() as names:
        logits, _ = read(made, tokens(6), "triton")
    assert not names & EXPERTS
    torch.testing.assert_close(logits, read(made, tokens(6), "torch")[0], rtol=0, atol=1e-5)


def test_another_word_is_refused(model, tokens):
    with pytest.raises(ValueError, match="kernels is 'cuda'; it is \"triton\", \"torch\" or None"):
        read(model("tiny_v1"), tokens(3), "cuda")


@on_a_gpu
@every_model
def test_kernels_are_the_default_on_a_gpu(name, model, tokens):
    with launched() as names:
        read(model(name), tokens(MODELS[name][0] + 1), None)
    assert names == MODELS[name][1]


@on_a_gpu
@every_model
def test_decodes_as_on_a_cpu(name, model, tokens):
    made = model(name)
    text = tokens(MODELS[name][0] + 1)
    logits, _ = read(made, text, None)
    wanted, _ = read(made.cpu(), text.cpu(), "torch")
    torch.testing.assert_close(logits.cpu(), wanted, rtol=0, atol=1e-4)


@on_a_gpu
@every_model
def test_trains_on_a_gpu(name, tokens, device):
    made = Transformer(getattr(presets, name)(), seed=0).to(device)
    optimiser = torch.optim.AdamW(made.parameters(), lr=3e-3)
    text = tokens(65, batch=4)
    losses = []
    for _ in range(12):
        logits_BTV, others = made.with_losses(text[:, :-1])
        loss = cross_entropy(logits_BTV.flatten(0, 1), text[:, 1:].flatten())
        (loss + sum(others)).backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
