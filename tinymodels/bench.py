"""`python -m tinymodels bench`: speed beside transformers, on the same weights, in one run.

A V3-style model of 6 layers and width 128, or with `--style v4` a V4-style one with a window and
both kinds of groups, is made by transformers and loaded here. Both must give the same logits;
then both read the same prompt and write the same number of tokens, turn by turn, so that a busy
machine slows both alike. Reported are medians. transformers runs as it comes: its default
attention and experts, its own cache, no gradient. `--clock cpu` counts the CPU seconds of this
process instead of those on the wall: what other programs do then matters less.

Where our time goes when V3 writes one token (each part left out in turn, one thread): attention
55 %, half of it for making queries and rows; router, experts and the shared expert 40 %. It is
some 800 small tensor operations, and starting one costs more than its arithmetic. V4 needs some
2,200: four streams are read and written twice a layer, and each row has its window and its groups.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from statistics import median

import torch
from torch import Tensor

from . import convert
from .transformer import Transformer

V3 = dict(
    vocab_size=1000,
    hidden_size=128,
    intermediate_size=384,
    num_hidden_layers=6,
    first_k_dense_replace=1,
    num_attention_heads=4,
    num_key_value_heads=4,
    q_lora_rank=96,
    kv_lora_rank=64,
    qk_nope_head_dim=32,
    qk_rope_head_dim=16,
    v_head_dim=32,
    moe_intermediate_size=64,
    n_routed_experts=16,
    num_experts_per_tok=4,
    n_shared_experts=1,
    n_group=4,
    topk_group=2,
    rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    max_position_embeddings=4096,
)
WINDOW, CSA, HCA = (
    "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention",
)  # fmt: skip
V4 = dict(
    vocab_size=1000,
    hidden_size=128,
    num_hidden_layers=6,
    layer_types=[WINDOW, WINDOW, CSA, HCA, CSA, HCA],
    compress_rates={CSA: 4, HCA: 32},
    sliding_window=128,
    num_attention_heads=8,
    head_dim=64,
    qk_rope_head_dim=16,
    q_lora_rank=64,
    o_groups=2,
    o_lora_rank=32,
    index_n_heads=32,
    index_head_dim=32,
    index_topk=64,
    hc_mult=4,
    mlp_layer_types=["hash_moe"] * 2 + ["moe"] * 4,
    moe_intermediate_size=64,
    n_routed_experts=16,
    num_experts_per_tok=4,
    max_position_embeddings=4096,
)
STYLES = {"v3": V3, "v4": V4}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
AGREE = 1e-4  # of the largest logit: more is not the same model


@dataclass(frozen=True)
class Speed:
    """Tokens a second, medians over the rounds: reading a prompt, and writing one token a pass."""

    prefill: float
    decode: float


@dataclass(frozen=True)
class Comparison:
    """ratios: ours / theirs. agreement: the largest difference of logits over the largest logit."""

    style: str
    context: int
    new: int
    rounds: int
    threads: int
    clock: str
    agreement: float
    ours: Speed
    theirs: Speed
    versions: dict[str, str]

    @property
    def ratios(self) -> Speed:
        return Speed(self.ours.prefill / self.theirs.prefill, self.ours.decode / self.theirs.decode)


def pair(style: str = "v3"):
    """(transformers' model, ours), equal weights. Errors: ImportError without transformers."""
    import transformers
    from transformers.utils import logging

    logging.set_verbosity_error()
    torch.manual_seed(0)
    made = getattr(transformers, f"Deepseek{style.upper()}Config")(**STYLES[style])
    model = getattr(transformers, f"Deepseek{style.upper()}ForCausalLM")(made)
    theirs = model.eval().requires_grad_(False)
    ours = Transformer(convert.config_from(theirs.config.to_dict(), "bench"))
    convert.load(ours, theirs.state_dict())
    return theirs, ours.requires_grad_(False)


def read_and_write(
    model, tokens_BT: Tensor, new: int, start: Callable, now: Callable[[], float] = CLOCKS["wall"]
) -> tuple[float, list, Tensor]:
    """(seconds to read the prompt, seconds of each of `new` tokens written, logits seen_BTV).

    start: model -> a pass(tokens) that returns the logits of the last token and remembers.
    """
    began = now()
    run = start(model, tokens_BT.shape[1] + new)
    seen = [run(tokens_BT)]
    prefill, seconds = now() - began, []
    for _ in range(new):
        began = now()
        seen.append(run(seen[-1].argmax(-1, keepdim=True)))
        seconds.append(now() - began)
    return prefill, seconds, torch.stack(seen, dim=1)


def start_theirs(model, capacity: int) -> Callable[[Tensor], Tensor]:
    past = None

    def run(tokens_BT: Tensor) -> Tensor:
        nonlocal past
        out = model(tokens_BT, past_key_values=past, use_cache=True, logits_to_keep=1)
        past = out.past_key_values
        return out.logits[:, -1]

    return run


def start_ours(model: Transformer, capacity: int) -> Callable[[Tensor], Tensor]:
    """Rows are kept in float32, as theirs are."""
    memory = model.new_cache(1, capacity, "float32")
    return lambda tokens_BT: model.prefill(tokens_BT, memory)


@torch.inference_mode()
def compare(
    context: int, new: int, rounds: int, clock: str = "wall", style: str = "v3"
) -> Comparison:
    """clock: a name in CLOCKS; style: one in STYLES. Errors: ImportError without transformers,
    ValueError if the logits do not agree."""
    theirs, ours = pair(style)
    draw = torch.Generator().manual_seed(1)
    tokens_BT = torch.randint(STYLES[style]["vocab_size"], (1, context), generator=draw)
    sides = {"theirs": (theirs, start_theirs), "ours": (ours, start_ours)}
    prefill: dict[str, list] = {side: [] for side in sides}
    decode: dict[str, list] = {side: [] for side in sides}
    for turn in range(rounds + 1):
        seen = {}
        for side, (model, start) in sides.items():
            read, wrote, seen[side] = read_and_write(model, tokens_BT, new, start, CLOCKS[clock])
            if turn:  # the first round warms up, and is where logits are compared
                prefill[side].append(read)
                decode[side] += wrote
        difference = (seen["ours"] - seen["theirs"]).abs().max() / seen["theirs"].abs().max()
        if difference > AGREE:
            raise ValueError(
                f"the two models differ by {difference:.1e} of the largest logit; "
                f"{AGREE:.0e} is the most that rounding explains"
            )
    speed = {
        side: Speed(context / median(prefill[side]), 1 / median(decode[side])) for side in sides
    }
    return Comparison(
        style, context, new, rounds, torch.get_num_threads(), clock, float(difference),
        speed["ours"], speed["theirs"], versions(),
    )  # fmt: skip


def versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("torch", "transformers")}


def table(c: Comparison) -> str:
    """The comparison for a terminal."""
    unit = "CPU second" if c.clock == "cpu" else "second"
    made = STYLES[c.style]
    lines = [
        f"{c.style.upper()}-style, {made['num_hidden_layers']} layers, width "
        f"{made['hidden_size']}, float32, "
        f"CPU, {c.threads} thread{'s' if c.threads > 1 else ''}, batch 1, context {c.context}",
        f"{f'tokens a {unit}':20}{'ours':>10}{'transformers':>15}{'ratio':>9}",
    ]
    for name in ("prefill", "decode"):
        ours, theirs = getattr(c.ours, name), getattr(c.theirs, name)
        lines.append(f"{name:20}{ours:10,.0f}{theirs:15,.0f}{ours / theirs:8.2f}x")
    lines.append(
        f"largest difference of logits {c.agreement:.1e} of the largest logit; "
        f"torch {c.versions['torch']}, transformers {c.versions['transformers']}"
    )
    return "\n".join(lines)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise ValueError(message)


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} must be an integer >= 1")
    return int(text)


def main(arguments: list[str]) -> int:
    """Prints the comparison and returns 0; one sentence on stderr and 2 where it cannot be made."""
    parser = _Parser(prog="python -m tinymodels bench", description=__doc__.split("\n")[0])
    parser.add_argument("--context", type=_count, default=512, help="tokens of the prompt")
    parser.add_argument("--new", type=_count, default=32, help="tokens written a round")
    parser.add_argument("--rounds", type=_count, default=5, help="measured rounds, after one more")
    parser.add_argument("--style", choices=STYLES, default="v3", help="whose layers")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="which seconds count")
    parser.add_argument("--json", action="store_true", help="print JSON")
    try:
        asked = parser.parse_args(arguments)
        longest = STYLES[asked.style]["max_position_embeddings"]
        if asked.context + asked.new > longest:
            raise ValueError(f"--context and --new together must be at most {longest} tokens")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of its own next version
            result = compare(asked.context, asked.new, asked.rounds, asked.clock, asked.style)
    except ImportError:
        print(
            "tinymodels bench: transformers is not installed; it is in the test extra: "
            "pip install -e '.[test]'",
            file=sys.stderr,
        )
        return 2
    except ValueError as problem:
        print(f"tinymodels bench: {problem}", file=sys.stderr)
        return 2
    print(
        json.dumps(asdict(result) | {"ratios": asdict(result.ratios)})
        if asked.json
        else table(result)
    )
    return 0
