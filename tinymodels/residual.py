"""What runs past the layers: one residual stream, or several copies that are mixed (mHC).

    plain          X' = X + F(X)
    mHC            X'_j = post_j F(sum_i pre_i X_i) + sum_i comb[i, j] X_i
    single-pass    the same, but `pre` comes from the sublayer before

mHC (V4 report; manifold-constrained hyper-connections) keeps N copies of the stream. Every token
computes from its own copies how a sublayer reads them (`pre`), how its answer is spread over them
(`post`) and how they mix (`comb`). comb is doubly stochastic: rows and columns add up to 1, so
mixing can neither blow the stream up nor let it fade. V4.1 (arXiv 2609.19969) lets a sublayer
read with the `pre` of the one before: then reading and mixing need the copies only once.

A residual is asked twice for each sublayer: `read` gives the sublayer its input, and `write`
takes its answer. What `read` learned and `write` needs goes through the caller's hands.
"""

from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from .config import HyperConnections
from .mixing import project_flat, wide
from .mixing import sinkhorn as sinkhorn
from .parts import Parts

KERNEL_COPIES = 4  # the most copies that the kernel holds


class Mixes(NamedTuple):
    """How one sublayer reads the copies, spreads its answer, and mixes them; per token."""

    pre_BTN: Tensor
    post_BTN: Tensor
    comb_BTNN: Tensor


class Carried(NamedTuple):
    """Single-pass mHC: the copies, and the `pre` that the next sublayer reads them with."""

    copies_BTNX: Tensor
    pre_BTN: Tensor


class Ahead(Carried):
    """Carried by the kernel, which made what comes next in passing: the next sublayer's input,
    and fn times the copies for its mixes. A changed copy (`_replace`) has neither."""

    read_BTX: Tensor | None = None
    flat_BTM: Tensor | None = None


Stream: TypeAlias = Tensor | Carried  # x_BTX if plain, copies_BTNX with mHC, Carried if single-pass


# ---------------------------------------------------------------- one sublayer


class Plain(nn.Module):
    """One stream: a sublayer reads it and adds to it."""

    def read(self, x_BTX: Float[Tensor, "B T X"]):
        return x_BTX, None

    def write(self, x_BTX, _kept, found_BTX, following=None):
        return x_BTX + found_BTX


class Hyper(nn.Module):
    """mHC around one sublayer. fn, base and scale make all of `Mixes`: rows pre, post, comb.

    norm_eps: of the RMS that the flattened copies are divided by.
    """

    def __init__(
        self, width: int, config: HyperConnections, norm_eps: float, parts: Parts | None = None
    ):
        super().__init__()
        n = config.copies
        self.config, self.norm_eps, self.parts = config, norm_eps, parts or Parts()
        self.kernel_may_write = n <= KERNEL_COPIES and "sinkhorn" not in self.parts.own()
        self.fn = nn.Parameter(torch.zeros((2 + n) * n, n * width))
        self.base = nn.Parameter(torch.zeros((2 + n) * n))
        self.scale = nn.Parameter(torch.ones(3))
        part = torch.tensor([0] * n + [1] * n + [2] * n * n)  # which scale each row has
        self.register_buffer("part", part, persistent=False)

    def mixes(self, copies_BTNX: Float[Tensor, "B T N X"]) -> Mixes:
        """At least in float32, whatever the model's dtype."""
        n, eps = self.config.copies, self.config.eps
        flat = project_flat(copies_BTNX, self.fn, self.norm_eps)
        base, scale = self.base.to(flat.dtype), self.scale.to(flat.dtype)
        raw = torch.addcmul(base, flat, scale[self.part])
        pre, post, comb = raw.split([n, n, n * n], dim=-1)
        logits_BTNN = comb.unflatten(-1, (n, n))
        comb_BTNN = self.parts.sinkhorn(logits_BTNN, self.config.sinkhorn_iterations, eps)
        return Mixes(pre.sigmoid() + eps, 2 * post.sigmoid(), comb_BTNN)

    def read(self, copies_BTNX: Float[Tensor, "B T N X"]):
        mixes = self.mixes(copies_BTNX)
        return weighted_sum(mixes.pre_BTN, copies_BTNX), mixes

    def write(self, copies_BTNX, mixes: Mixes, found_BTX, following=None):
        return spread_and_mix(copies_BTNX, mixes, found_BTX)


class SinglePassHyper(Hyper):
    """mHC whose `pre` is used one sublayer later; `post` and `comb` are used at once."""

    def read(self, stream: Carried):
        if isinstance(stream, Ahead) and stream.read_BTX is not None:
            return stream.read_BTX, None
        return weighted_sum(stream.pre_BTN, stream.copies_BTNX), None

    def write(self, stream: Carried, _kept, found_BTX, following=None) -> Carried:
        """following: the next sublayer's residual, if the kernel is to write: it needs that one's
        fn, so that the copies are read once and written once. None: plain torch."""
        if following is not None and self.kernel_may_write:
            return self._write_ahead(stream, found_BTX, following)
        mixes = self.mixes(stream.copies_BTNX)
        copies_BTNX = spread_and_mix(stream.copies_BTNX, mixes, found_BTX)
        return Carried(copies_BTNX, mixes.pre_BTN)

    def _write_ahead(self, stream: Carried, found_BTX, following: Hyper) -> Ahead:
        from kernels import hyper_connection

        base, scale, n = self.base.float(), self.scale.float(), self.config.copies
        flat_BTM = stream.flat_BTM if isinstance(stream, Ahead) else None
        if flat_BTM is None:
            flat_BTM = project_flat(stream.copies_BTNX, self.fn, self.norm_eps)
        copies_BTNX, read_BTX, next_flat_BTM = hyper_connection(
            stream.copies_BTNX,
            found_BTX,
            flat_BTM,
            base,
            scale,
            following.fn.float(),
            iterations=self.config.sinkhorn_iterations,
            eps=self.config.eps,
            norm_eps=self.norm_eps,
            impl="triton",
        )
        pre_BTN = (flat_BTM[..., :n] * scale[0] + base[:n]).sigmoid() + self.config.eps
        ahead = Ahead(copies_BTNX, pre_BTN)
        ahead.read_BTX, ahead.flat_BTM = read_BTX, next_flat_BTM
        return ahead


def build_residual(
    width: int, config: HyperConnections | None, norm_eps: float, parts: Parts | None = None
) -> nn.Module:
    """The residual of one sublayer."""
    if config is None:
        return Plain()
    return (SinglePassHyper if config.single_pass else Hyper)(width, config, norm_eps, parts)


# ---------------------------------------------------------------- both ends of the stream


def open_stream(x_BTX: Float[Tensor, "B T X"], config: HyperConnections | None) -> Stream:
    """The stream at the embedding: every copy is the same. Single-pass starts with copy 0."""
    if config is None:
        return x_BTX
    copies_BTNX = x_BTX.unsqueeze(-2).expand(*x_BTX.shape[:-1], config.copies, -1)
    if not config.single_pass:
        return copies_BTNX
    pre_BTN = torch.zeros(copies_BTNX.shape[:-1], dtype=wide(x_BTX), device=x_BTX.device)
    pre_BTN[..., 0] = 1
    return Carried(copies_BTNX, pre_BTN)


def newest(stream: Stream, count: int) -> Stream:
    """The last `count` tokens of a stream, copied, so that the others need not be kept."""
    if isinstance(stream, Carried):
        return Carried(*(newest(x, count) for x in stream))
    return stream[:, stream.shape[1] - count :].clone()


def join(streams: list[Stream]) -> Stream:
    """Streams of one text, one after the other."""
    if isinstance(streams[0], Carried):
        return Carried(*(torch.cat(parts, dim=1) for parts in zip(*streams, strict=True)))
    return torch.cat(streams, dim=1)


class PlainFold(nn.Module):
    """One stream is its own end."""

    def forward(self, x_BTX):
        return x_BTX


class Fold(nn.Module):
    """V4's end: weights of its own, made as `pre` is, fold the copies into one."""

    def __init__(self, width: int, config: HyperConnections, norm_eps: float):
        super().__init__()
        self.eps, self.norm_eps = config.eps, norm_eps
        self.fn = nn.Parameter(torch.zeros(config.copies, config.copies * width))
        self.base = nn.Parameter(torch.zeros(config.copies))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, copies_BTNX: Float[Tensor, "B T N X"]) -> Float[Tensor, "B T X"]:
        flat = project_flat(copies_BTNX, self.fn, self.norm_eps)
        return weighted_sum((flat * self.scale + self.base).sigmoid() + self.eps, copies_BTNX)


class SinglePassFold(nn.Module):
    """V4.1's end: the last sublayer's `pre` folds the copies."""

    def forward(self, stream: Carried) -> Float[Tensor, "B T X"]:
        return weighted_sum(stream.pre_BTN, stream.copies_BTNX)


def build_fold(width: int, config: HyperConnections | None, norm_eps: float) -> nn.Module:
    if config is None:
        return PlainFold()
    return SinglePassFold() if config.single_pass else Fold(width, config, norm_eps)


# ---------------------------------------------------------------- arithmetic


def weighted_sum(
    weight_BTN: Float[Tensor, "B T N"], copies_BTNX: Float[Tensor, "B T N X"]
) -> Float[Tensor, "B T X"]:
    return (weight_BTN.unsqueeze(-1) * copies_BTNX).sum(-2).to(copies_BTNX.dtype)


def spread_and_mix(
    copies_BTNX: Float[Tensor, "B T N X"], mixes: Mixes, found_BTX: Float[Tensor, "B T X"]
) -> Float[Tensor, "B T N X"]:
    """New copy j: post_j of what was found, and comb[i, j] of every old copy i."""
    # One product for both: what was found stands before the copies, as one copy more.
    share_BTMN = torch.cat([mixes.post_BTN.unsqueeze(-2), mixes.comb_BTNN], dim=-2)
    each_BTMX = torch.cat([found_BTX.unsqueeze(-2), copies_BTNX], dim=-2).to(share_BTMN.dtype)
    return (share_BTMN.transpose(-1, -2) @ each_BTMX).to(copies_BTNX.dtype)
