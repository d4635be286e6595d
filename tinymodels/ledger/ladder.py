"""From 389,120 bytes a token to 890: one rung a change, each computed from a configuration.

A rung that a model stands on carries that figure's status; every other is D, derived here by
undoing or doing one change to a model's configuration.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..config import CSA2, GQA, Grouped, Layer, ModelConfig, RowFormat
from ..published import PUBLISHED, V1, V2, V3, V3_2, V4_1_FLASH, V4_FLASH, V4_PRO, Status
from .memory import rate


@dataclass(frozen=True)
class Step:
    """One rung. `without` is the rate of the same model with only this rung's switch undone.

    published: whether the rate is printed or charted by its source (status C or R).
    """

    name: str
    switch: str
    change: str
    rate: int | float
    without: int | float
    status: Status
    model: str
    row: RowFormat
    arithmetic: str

    @property
    def published(self) -> bool:
        return self.status != "D"

    @property
    def factor(self) -> float:
        """How many times smaller the switch makes the memory; below 1 it makes it larger."""
        return self.without / self.rate


def steps() -> tuple[Step, ...]:
    """The rungs in the order of the story, from V1's 389,120 to V4.1-Flash's 890."""
    return (*_whole_tokens(), *_groups(), *_sharing())


def _whole_tokens() -> tuple[Step, ...]:
    heads = _each(V1, GQA, lambda a: replace(a, kv_heads=a.heads))
    return (
        _stand(
            V1, "V1", "GQA", "64 query heads share 8 kv heads", rate(heads), "95 x 2 x 8 x 128 x 2"
        ),
        _stand(
            V2,
            "V2",
            "latent",
            "one latent of 512 and one rope key of 64 serve all 128 heads",
            _as_heads(V2),
            "60 x (512 + 64) x 2",
        ),
        _stand(
            V3, "V3", "latent", "the same row, one layer more", _as_heads(V3), "61 x (512 + 64) x 2"
        ),
        Step(
            "V3.2 in bf16",
            "indexer keys",
            "a scorer's key of 128 joins each row: fewer reads, more bytes",
            rate(V3_2, row="bf16"),
            rate(V3, row="bf16"),
            "D",
            V3_2.name,
            "bf16",
            "61 x (576 + 128) x 2",
        ),
        _stand(
            V3_2,
            "V3.2",
            "FP8",
            "latent and index key in FP8 with scales; the rope key stays bf16",
            rate(V3_2, row="bf16"),
            "61 x (656 + 132)",
        ),
    )


def _groups() -> tuple[Step, ...]:
    def step(model: ModelConfig, name: str, arithmetic: str) -> Step:
        alone = _each(model, Grouped, lambda a: replace(a, ratio=min(a.ratio, 1)))
        return _stand(
            model, name, "groups", "4 or 128 tokens become one entry", rate(alone), arithmetic
        )

    return (
        step(V4_FLASH, "V4-Flash", "21 x (584 + 68) / 4 + 20 x 584 / 128"),
        step(V4_PRO, "V4-Pro", "30 x (584 + 68) / 4 + 31 x 584 / 128"),
    )


def _sharing() -> tuple[Step, ...]:
    alone = unshared(V4_1_FLASH)
    ungrouped = _each(alone, CSA2, lambda a: replace(a, ratio=min(a.ratio, 1)))

    def step(model: ModelConfig, row: RowFormat, without, *texts: str) -> Step:
        name, switch, change, arithmetic = texts
        size = rate(model, row=row)
        return Step(name, switch, change, size, without, "D", V4_1_FLASH.name, row, arithmetic)

    return (
        step(
            alone,
            "bf16",
            rate(ungrouped, row="bf16"),
            "V4.1 unshared in bf16",
            "groups",
            "2 tokens an entry in the encoder, 1 in the decoder",
            "(18 / 2 + 20) x (512 + 128) x 2",
        ),
        step(
            V4_1_FLASH,
            "bf16",
            rate(alone, row="bf16"),
            "V4.1 in bf16",
            "sharing",
            "4 of 38 layers own entries, the others borrow them",
            "(3 / 2 + 1) x (512 + 128) x 2",
        ),
        step(
            V4_1_FLASH,
            "fp8",
            rate(V4_1_FLASH, row="bf16"),
            "V4.1 in FP8",
            "FP8",
            "8 bits a value, with scales",
            "(3 / 2 + 1) x (528 + 132)",
        ),
        _stand(
            V4_1_FLASH,
            "V4.1-Flash",
            "FP4",
            "4 bits a value, with scales",
            rate(V4_1_FLASH, row="fp8"),
            "(3 / 2 + 1) x (288 + 68)",
        ),
    )


def unshared(config: ModelConfig) -> ModelConfig:
    """A CSA2 model in which every layer with a far memory owns it: what sharing is worth."""
    owner = next(
        layer.attention
        for layer in config.layers
        if isinstance(layer.attention, CSA2) and layer.attention.mode == "full"
    )

    def own(a: CSA2) -> CSA2:
        if a.mode == "window":
            return a
        return replace(a, mode="full", indexer=owner.indexer, kv_source=None, index_source=None)

    return _each(config, CSA2, own)


def _stand(model: ModelConfig, name, switch, change, without, arithmetic) -> Step:
    """A rung that a published model stands on, in its deployed rows."""
    status = PUBLISHED[model.name].rate.status
    return Step(
        name, switch, change, rate(model), without, status, model.name, model.row, arithmetic
    )


def _as_heads(model: ModelConfig) -> int | float:
    """The rate if every head kept its own key (nope and rope) and value in bf16."""
    a = model.layers[0].attention
    return len(model) * a.heads * (a.nope_dim + a.rope_dim + a.v_dim) * 2


def _each(config: ModelConfig, kind: type, change: Callable) -> ModelConfig:
    layers = tuple(
        Layer(change(layer.attention), layer.ffn) if isinstance(layer.attention, kind) else layer
        for layer in config.layers
    )
    return config.with_(layers=layers)
