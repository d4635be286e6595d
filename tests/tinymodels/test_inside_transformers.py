"""Absorption, a learner's or the course's, inside transformers' own V3: the same logits."""

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is a test extra")

from grading.course_notebook import Course, answers
from tinymodels.inside_transformers import absorbing, tiny_v3
from tinymodels.parts import reference_absorb
from tinymodels.presets import tiny_v1
from tinymodels.transformer import Transformer

from .deepseek_pairs import CASES, fair, theirs_of

pytestmark = pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
V3 = [case for case in CASES if case.startswith("v3 ")]


@pytest.fixture(scope="module", params=["the course's", "the learner's"])
def absorb(request):
    if request.param == "the course's":
        return reference_absorb
    return answers(Course(), "06__mla")["06.3"]


@pytest.mark.parametrize("case", V3)
@torch.no_grad()
def test_logits_stay_what_they_were(case, absorb):
    """A prompt as a whole; the same prompt and then token by token, out of the latent cache."""
    theirs = theirs_of(case)
    tokens = torch.randint(CASES[case]["vocab_size"], (2, 13))
    with fair("v3"):
        want = theirs(tokens, use_cache=False).logits
        with absorbing(theirs, absorb):
            got, past, parts = theirs(tokens, use_cache=False).logits, None, []
            for part in tokens.split([6, 1, 1, 5], dim=1):
                out = theirs(part, past_key_values=past, use_cache=True)
                past = out.past_key_values
                parts.append(out.logits)
        again = theirs(tokens, use_cache=False).logits
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)
    torch.testing.assert_close(torch.cat(parts, 1), want, rtol=0, atol=1e-10)
    assert torch.equal(again, want)  # their own attention is back
    kept = past.layers[0]
    widths = CASES[case]["kv_lora_rank"], CASES[case]["qk_rope_head_dim"]
    assert (kept.keys.shape, kept.values.shape) == ((2, 1, 13, widths[0]), (2, 1, 13, widths[1]))


@torch.no_grad()
def test_a_wrong_absorption_is_seen():
    model, tokens = tiny_v3(), torch.arange(11)[None]
    want = model(tokens, use_cache=False).logits

    def unscaled(*given):
        return reference_absorb(*given[:6], 1.0, given[7])

    with absorbing(model, unscaled):
        assert (model(tokens, use_cache=False).logits - want).abs().max() > 0.05
    with absorbing(model, reference_absorb):
        torch.testing.assert_close(model(tokens, use_cache=False).logits, want, rtol=0, atol=1e-4)


def test_other_models_are_refused():
    with (
        pytest.raises(ValueError, match="no latent attention"),
        absorbing(Transformer(tiny_v1()), reference_absorb),
    ):
        pass
