"""Promise 5 for V2, V3 and V3.2: the same weights in transformers give the same logits."""

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is a test extra")

from .deepseek_pairs import CASES, fair, pair  # noqa: E402

by_case = pytest.mark.parametrize("case", CASES)
pytestmark = pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")


def lengths(case: str) -> list[int]:
    """Short ones, and those around the place where a choice begins to leave something out."""
    k = CASES[case].get("index_topk")
    return [1, 2, 23] if k is None else [1, k - 1, k, k + 1, 3 * k + 2]


def prompt(case: str, length: int, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(CASES[case]["vocab_size"], (2, length), generator=draw)


@by_case
@torch.no_grad()
def test_prefill(case):
    theirs, ours = pair(case)
    for length in lengths(case):
        tokens = prompt(case, length)
        with fair(case.split()[0]):
            want = theirs(tokens, use_cache=False).logits
        assert want.std() > 0.3
        torch.testing.assert_close(ours(tokens), want, rtol=0, atol=1e-10)


@by_case
@pytest.mark.parametrize("seed", [1, 2])
@torch.no_grad()
def test_decode_after_a_prompt(case, seed):
    theirs, ours = pair(case, seed=seed)
    k = CASES[case].get("index_topk", 9)
    total = 2 * k + 3
    tokens = prompt(case, total, seed)
    memory, past = ours.new_cache(2, total, "float64"), None
    for part in tokens.split([k - 2, *[1] * (k + 2), 3], dim=1):
        with fair(case.split()[0]):
            out = theirs(part, past_key_values=past, use_cache=True)
        past = out.past_key_values
        torch.testing.assert_close(ours(part, memory), out.logits, rtol=0, atol=1e-10)


@by_case
@torch.no_grad()
def test_fp32(case):
    """As released, both in float32: within 1e-5 of the largest logit."""
    theirs, ours = pair(case, torch.float32)
    tokens = prompt(case, 13)
    want = theirs(tokens).logits
    scale = want.abs().max()
    torch.testing.assert_close(ours(tokens) / scale, want / scale, rtol=0, atol=1e-5)
