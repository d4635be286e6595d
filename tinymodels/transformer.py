"""The model: embedding, layers, head. Training, prefill and decode are the same lines.

A layer looks back (attention), then works in place (feed-forward); each adds what it found to
the residual stream, after reading it through a norm (pre-norm).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from . import config as config_kinds
from .attention.dsa import DSA
from .attention.mha import MHA
from .attention.mla import MLA
from .cache import ModelCache
from .cache.rows import Storage
from .config import GQA, Dense, ModelConfig, MoE
from .ffn import FeedForward
from .moe import MoEFeedForward
from .norm import RMSNorm
from .parts import Parts
from .step import Step


def build_attention(config: ModelConfig, layer: int, parts: Parts) -> nn.Module:
    """The attention of one layer. Errors: ValueError for a kind that is counted, not run."""
    attention = config.layers[layer].attention
    match attention:
        case GQA(kv_source=None):
            return MHA(config.width, attention, parts)
        case config_kinds.MLA(indexer=None):
            return MLA(config.width, attention, parts, config.norm_eps)
        case config_kinds.MLA():
            return DSA(config.width, attention, parts, config.norm_eps)
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
        self.attention_norm = RMSNorm(config.width, config.norm_eps)
        self.attention = build_attention(config, layer, parts)
        self.ffn_norm = RMSNorm(config.width, config.norm_eps)
        self.ffn = build_ffn(config, layer, parts)

    def forward(self, x_BTX: Float[Tensor, "B T X"], step: Step, cache=None):
        found, step = self.attention(self.attention_norm(x_BTX), step, cache)
        x_BTX = x_BTX + found
        ids = (step.tokens_BT,) if isinstance(self.ffn, MoEFeedForward) else ()
        return x_BTX + self.ffn(self.ffn_norm(x_BTX), *ids), step


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
                out = name.endswith((".attention.output.weight", ".down.weight"))
                p.copy_(torch.randn(p.shape, generator=draw) * 0.02 * (shrink if out else 1))

    @property
    def device(self) -> torch.device:
        return self.embed.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed.weight.dtype

    def new_cache(self, batch: int, capacity: int, storage: Storage = "packed") -> ModelCache:
        """An empty memory for `batch` sequences of up to `capacity` tokens."""
        return ModelCache(
            self.config, batch, capacity, storage, dtype=self.dtype, device=self.device
        )

    def forward(
        self,
        tokens_BT: Int[Tensor, "B T"],
        cache: ModelCache | None = None,
        kernels: str | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits for what follows each token. With a cache, the tokens follow those cached.

        kernels: "triton" or "torch"; None chooses (see `Step`). Errors: ValueError for tokens
        that are no integers, have the wrong shape or lie outside the vocabulary, for an empty
        chunk, and for a chunk that does not fit the cache; the cache is unchanged then.
        """
        self._check_tokens(tokens_BT)
        if cache is None:
            return self._run(tokens_BT, None, kernels)
        cache.check_room(*tokens_BT.shape)
        with torch.no_grad():
            try:
                logits_BTV = self._run(tokens_BT, cache, kernels)
            except BaseException:
                cache.interrupted = True
                raise
        cache.length += tokens_BT.shape[1]
        return logits_BTV

    def _run(self, tokens_BT, cache: ModelCache | None, kernels: str | None):
        step = Step(tokens_BT, 0 if cache is None else cache.length, kernels)
        return self._through_layers(step, cache)[0]

    def _through_layers(self, step: Step, cache: ModelCache | None = None):
        x_BTX = self.embed(step.tokens_BT)
        for i, layer in enumerate(self.layers):
            x_BTX, step = layer(x_BTX, step, None if cache is None else cache.layers[i])
        return self.head(self.norm(x_BTX)), step

    def with_losses(
        self, tokens_BT: Int[Tensor, "B T"]
    ) -> tuple[Float[Tensor, "B T V"], tuple[Tensor, ...]]:
        """For training: logits, and what layers want to be trained on besides the text.

        An indexer is one such layer (see `attention/dsa.py`); most models have none.
        """
        self._check_tokens(tokens_BT)
        logits_BTV, step = self._through_layers(Step(tokens_BT, losses=()))
        return logits_BTV, step.losses

    def prefill(
        self,
        tokens_BT: Int[Tensor, "B T"],
        cache: ModelCache,
        last: bool = True,
        exact: bool = False,
    ) -> Tensor | None:
        """Read a prompt, or a chunk of it, into the cache.

        Returns logits_BV of the last position, None when `last=False`; with `exact=True`
        logits_BTV of the whole chunk. Models without a decoder half run every layer either way.
        """
        logits_BTV = self(tokens_BT, cache)
        if exact:
            return logits_BTV
        return logits_BTV[:, -1] if last else None

    def generate(self, tokens_BT: Int[Tensor, "B T"], new: int, **how) -> Int[Tensor, "B T+new"]:
        """The prompt and `new` tokens after it; see `tinymodels.generate.generate`."""
        from .generate import generate

        return generate(self, tokens_BT, new, **how)

    def _check_tokens(self, tokens_BT) -> None:
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
