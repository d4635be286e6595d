"""The model: embedding, layers, head. Training, prefill and decode are the same lines.

A layer looks back (attention), then works in place (feed-forward); each adds what it found to
the residual stream, after reading it through a norm (pre-norm).
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from . import ced
from . import config as config_kinds
from .attention.csa import CSA
from .attention.csa2 import CSA2
from .attention.dsa import DSA
from .attention.mha import MHA
from .attention.mla import MLA
from .attention.sliding import Sliding
from .cache import ModelCache
from .cache.rows import Storage
from .config import GQA, Dense, ModelConfig, MoE, RowFormat, Yarn
from .ffn import FeedForward
from .moe import MoEFeedForward, balance_loss, watch_routing
from .norm import RMSNorm
from .parts import Parts
from .residual import Stream, build_fold, build_residual, open_stream
from .step import Step

# The matrices through which a layer writes to the stream: their first weights are smaller.
OUTPUTS = (
    ".attention.output.weight",
    ".attention.output.expand.weight",
    ".down.weight",
    ".experts.down",
)

EVEN_OUT = 0.003  # V2's weight of the loss that spreads tokens over experts


def build_attention(config: ModelConfig, layer: int, parts: Parts) -> nn.Module:
    """The attention of one layer. Errors: ValueError for a kind that is counted, not run."""
    attention = config.layers[layer].attention
    match attention:
        case GQA(kv_source=None):
            return MHA(config.width, attention, parts)
        case config_kinds.MLA(indexer=None):
            return MLA(config.width, attention, parts, config.norm_eps)
        case config_kinds.MLA(rope=config_kinds.Rope(yarn=None | Yarn(attention_factor=1))):
            return DSA(config.width, attention, parts, config.norm_eps)
        case config_kinds.Grouped(ratio=0) | config_kinds.CSA2(mode="window"):
            return Sliding(config.width, attention, config.norm_eps, parts)
        case config_kinds.Grouped():
            return CSA(config.width, attention, config.norm_eps, parts)
        case config_kinds.CSA2():
            return CSA2(config.width, attention, config.norm_eps, layer, parts)
    raise ValueError(f"layer {layer}: {attention} can be counted but not run")


def build_ffn(config: ModelConfig, layer: int, parts: Parts) -> nn.Module:
    ffn = config.layers[layer].ffn
    match ffn:
        case Dense():
            return FeedForward(config.width, ffn, parts)
        case MoE():
            return MoEFeedForward(config.width, ffn, parts, config.vocab)
    raise ValueError(f"layer {layer}: {ffn} can be counted but not run")


class Block(nn.Module):
    """One layer: look back, then work in place."""

    def __init__(self, config: ModelConfig, layer: int, parts: Parts):
        super().__init__()
        width, eps = config.width, config.norm_eps
        self.attention_residual = build_residual(width, config.residual, eps, parts)
        self.attention_norm = RMSNorm(width, eps)
        self.attention = build_attention(config, layer, parts)
        self.ffn_residual = build_residual(width, config.residual, eps, parts)
        self.ffn_norm = RMSNorm(width, eps)
        self.ffn = build_ffn(config, layer, parts)
        own = config.residual is None and "block" in parts.own()
        self.own_block = parts.block if own else None

    def forward(self, stream: Stream, step: Step, cache=None):
        if self.own_block is not None:
            return self._through_own_block(stream, step, cache)
        x_BTX, kept = self.attention_residual.read(stream)
        impl = step.impl(x_BTX)
        found_BTX, step = self.attention(self.attention_norm(x_BTX), step, cache)
        following = self.ffn_residual if impl == "triton" else None
        stream = self.attention_residual.write(stream, kept, found_BTX, following)
        x_BTX, kept = self.ffn_residual.read(stream)
        asks = (step.tokens_BT, impl) if isinstance(self.ffn, MoEFeedForward) else ()
        found_BTX = self.ffn(self.ffn_norm(x_BTX), *asks)
        following = step.following if impl == "triton" else None
        return self.ffn_residual.write(stream, kept, found_BTX, following), step

    def _through_own_block(self, x_BTX: Float[Tensor, "B T X"], step: Step, cache):
        """The same layer by a learner's function (`Parts.block`)."""
        asks = (step.tokens_BT, step.impl(x_BTX)) if isinstance(self.ffn, MoEFeedForward) else ()
        steps = [step]

        def attention(x_BTX):
            found_BTX, later = self.attention(x_BTX, step, cache)
            steps.append(later)
            return found_BTX

        weights = self.attention_norm.weight, self.ffn_norm.weight
        x_BTX = self.own_block(
            x_BTX, attention, lambda x_BTX: self.ffn(x_BTX, *asks), *weights, self.ffn_norm.eps
        )
        return x_BTX, steps[-1]

    def publish(self, stream: Stream, step: Step, cache=None) -> Step:
        """Only what later layers read of this one's entries (CSA2, mode full)."""
        x_BTX, _ = self.attention_residual.read(stream)
        return self.attention.publish(self.attention_norm(x_BTX), step, cache)


class Transformer(nn.Module):
    """A model made from its config. `parts` replaces pieces with one's own functions.

    seed: weights are drawn from it (normal, 0.02; the layers' outputs shrunk by the square root
    of twice their number), the same on every machine.
    """

    def __init__(self, config: ModelConfig, parts: Parts | None = None, seed: int = 0):
        super().__init__()
        self.config, self.parts = config, parts or Parts()
        self.embed = nn.Embedding(config.vocab, config.width)
        self.layers = nn.ModuleList(Block(config, i, self.parts) for i in range(len(config.layers)))
        self.fold = build_fold(config.width, config.residual, config.norm_eps)
        self.norm = RMSNorm(config.width, config.norm_eps)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        if config.tied:
            self.head.weight = self.embed.weight
        self._initialise(seed)

    @torch.no_grad()
    def _initialise(self, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        shrink = (2 * len(self.layers)) ** -0.5
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                p.zero_()
            elif p.dim() > 1:
                out = name.endswith(OUTPUTS)
                p.copy_(torch.randn(p.shape, generator=draw) * 0.02 * (shrink if out else 1))

    @property
    def device(self) -> torch.device:
        return self.embed.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed.weight.dtype

    def new_cache(
        self,
        batch: int,
        capacity: int,
        storage: Storage = "packed",
        row: RowFormat | None = None,
    ) -> ModelCache:
        """An empty memory for `batch` sequences of up to `capacity` tokens.

        row: the format of packed rows; None takes the model's own (`ModelConfig.row`).
        """
        return ModelCache(
            self.config, batch, capacity, storage, row, dtype=self.dtype, device=self.device
        )

    def forward(
        self,
        tokens_BT: Int[Tensor, "B T"],
        cache: ModelCache | None = None,
        kernels: str | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits for what follows each token. With a cache, the tokens follow those cached.

        kernels: "triton" takes the course's kernels wherever they can answer (no float64, no
        gradient; `Step.impl`), "torch" nowhere, None only on a GPU. Errors: ValueError for tokens
        that are no integers, have the wrong shape or lie outside the vocabulary, for an empty
        chunk, and for a chunk that does not fit the cache; the cache is unchanged then.
        """
        self.check_tokens(tokens_BT)
        if cache is None:
            return self.through_layers(Step(tokens_BT, 0, kernels))[0]
        self.check_cache(cache)
        cache.check_complete()
        cache.check_room(*tokens_BT.shape)
        with torch.no_grad(), cache.writing(tokens_BT.shape[1], kernels):
            return self.through_layers(Step(tokens_BT, cache.length, kernels), cache)[0]

    def through_layers(self, step: Step, cache: ModelCache | None = None):
        stream = self.open(step)
        stream, step = self.run(range(len(self.layers)), stream, step, cache)
        return self.close(stream), step

    def open(self, step: Step) -> Stream:
        """The stream as it enters the first layer."""
        return open_stream(self.embed(step.tokens_BT), self.config.residual)

    def run(self, layers: range, stream: Stream, step: Step, cache: ModelCache | None = None):
        """The stream and the step after these layers."""
        ahead = self.config.residual is not None and step.kernels != "torch"
        for i in layers:
            if ahead and i + 1 < len(self.layers):
                step = replace(step, following=self.layers[i + 1].attention_residual)
            stream, step = self.layers[i](stream, step, None if cache is None else cache.layers[i])
            if cache is not None:
                cache.work[i] += step.tokens_BT.shape[1]
        return stream, step

    def close(self, stream: Stream) -> Float[Tensor, "B T V"]:
        """Logits from the stream as it leaves the last layer."""
        return self.head(self.norm(self.fold(stream)))

    def with_losses(
        self, tokens_BT: Int[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T V"], tuple[Tensor, ...]]:
        """For training: logits, and what layers want to be trained on besides the text.

        An indexer is one such layer (see `attention/dsa.py`); so is a router that no bias evens
        out (V2; `moe.balance_loss`, with V2's factor). Most models have none.
        """
        self.check_tokens(tokens_BT)
        with watch_routing(self) as routed:
            logits_BTV, step = self.through_layers(Step(tokens_BT, losses=()))
        unbiased = (n for n in routed if self.get_submodule(n).needs_loss)
        balance = (EVEN_OUT * balance_loss(one) for name in unbiased for one in routed[name])
        return logits_BTV, (*step.losses, *balance)

    def prefill(
        self,
        tokens_BT: Int[Tensor, "B T"],
        cache: ModelCache,
        last: bool = True,
        exact: bool = False,
    ) -> Tensor | None:
        """Read a prompt, or a chunk of it, into the cache.

        Returns logits_BV of the last position, None when `last=False`; with `exact=True`
        logits_BTV of the whole chunk. Models without a decoder half run every layer either way;
        where there is one (V4.1) it runs once, after the last chunk (see `ced.py`).
        """
        if self.config.decoder_start is not None and not exact:
            return ced.prefill(self, tokens_BT, cache, last)
        logits_BTV = self(tokens_BT, cache)
        if exact:
            return logits_BTV
        return logits_BTV[:, -1] if last else None

    def generate(self, tokens_BT: Int[Tensor, "B T"], new: int, **how) -> Int[Tensor, "B T+new"]:
        """The prompt and `new` tokens after it; see `tinymodels.generate.generate`."""
        from .generate import generate

        return generate(self, tokens_BT, new, **how)

    def check_cache(self, cache: ModelCache) -> None:
        """Errors: ValueError for what is no cache, or one that was made for another model, for
        numbers of another dtype, or on another device."""
        if not isinstance(cache, ModelCache):
            raise ValueError(f"cache is {type(cache).__name__}; make one with model.new_cache(...)")
        if cache.config is not self.config and cache.config != self.config:
            raise ValueError(
                f"the cache was made for {cache.config.name} ({len(cache.config)} layers), this "
                f"model is {self.config.name} ({len(self.config)} layers) or differs elsewhere; "
                "make one with model.new_cache(...)"
            )
        cache.check_numbers(self.dtype, self.device)

    def check_tokens(self, tokens_BT) -> None:
        if not isinstance(tokens_BT, Tensor) or tokens_BT.dtype not in (torch.int64, torch.int32):
            what = getattr(tokens_BT, "dtype", type(tokens_BT).__name__)
            raise ValueError(f"tokens are {what}; they must be a tensor of int64 or int32")
        if tokens_BT.dim() != 2:
            raise ValueError(
                f"tokens have shape {tuple(tokens_BT.shape)}; they need [batch, tokens]"
            )
        if not tokens_BT.numel():
            raise ValueError(
                f"tokens have shape {tuple(tokens_BT.shape)}: nothing to read; pass one or more"
            )
        low, high = (int(t) for t in tokens_BT.aminmax())
        if low < 0 or high >= self.config.vocab:
            raise ValueError(
                f"tokens run from {low} to {high}; the vocabulary has 0 to {self.config.vocab - 1}"
            )
