"""One field of a configuration: present and of the right type, or the published default.

Errors name the file, the field, what stands there and what would be right.
"""

from collections.abc import Iterable
from typing import Any

MOST = 2**63 - 1  # no size is larger; what is counted from it must still print
MOST_LAYERS = 10_000  # beyond this a number is a slip, and would fill the memory here

# Fields that real multimodal files repeat with another meaning, and that no byte depends on.
INNER_WINS = frozenset(
    "vocab_size tie_word_embeddings max_position_embeddings rope_theta rope_scaling "
    "rope_parameters rms_norm_eps intermediate_size attention_bias mlp_bias".split()
)

_ABSENT = object()
_REQUIRED = object()


class Fields:
    """A configuration being read. `notes` collects what was taken by default.

    where: how errors call it. outer: the values around a nested text_config; one that stands in
    both places must be the same.
    """

    def __init__(self, values: dict[str, Any], where: str, outer: dict[str, Any] | None = None):
        self.values, self.where, self.outer = values, where, outer or {}
        self.nested = outer is not None
        self.notes: list[str] = []

    # ------------------------------------------------------------ reading

    def integer(self, *names: str, default: Any = _REQUIRED, least: int = 1) -> int:
        """An integer >= least under any of `names`. null counts as absent."""
        value = self._given(names, default)
        if value is None or value is _ABSENT:
            self.refuse(f"{names[0]} is missing", f"give an integer >= {least}")
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.refuse(f"{names[0]} is {value!r}", f"it must be an integer >= {least}")
        if value > MOST:
            self.refuse(f"{names[0]} has {len(str(value))} digits", f"at most {MOST} is read")
        return value

    def optional(self, *names: str, default: int | None = None, least: int = 1) -> int | None:
        """An integer, or None where the file says null; absent takes `default`."""
        if self._raw(names) is None:
            return None
        return (
            self.integer(*names, default=default, least=least)
            if self._has(names, default)
            else None
        )

    def core(self, *names: str, default: int | None = None) -> int:
        """An integer >= 1 that a file of its own always states: layers, heads, width.

        A nested text_config is written with only what differs from the family's class, so there,
        and only there, the class's default is taken.
        """
        if default is None or not self.nested:
            return self.integer(*names)
        return self.integer(*names, default=default)

    def layers(self, *names: str, default: int | None = None) -> int:
        """The number of layers."""
        names = names or ("num_hidden_layers",)
        count = self.core(*names, default=default)
        if count > MOST_LAYERS:
            self.refuse(f"{names[0]} is {count}", f"at most {MOST_LAYERS} are read")
        return count

    def number(self, *names: str, default: Any = _REQUIRED) -> float:
        """A finite number."""
        value = self._given(names, default)
        if value is None or value is _ABSENT:
            self.refuse(f"{names[0]} is missing", "give a number")
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not -MOST <= value <= MOST  # NaN is in no order
        ):
            self.refuse(f"{names[0]} is {value!r}", "it must be a finite number")
        return float(value)

    def flag(self, *names: str, default: bool) -> bool:
        """true or false; a flag left out is not worth a note."""
        value = self._raw(names)
        if value is _ABSENT or value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(f"{names[0]} is {value!r}", "it must be true or false")
        return value

    def word(self, *names: str, allowed: Iterable[str], default: Any = _REQUIRED) -> Any:
        """One of `allowed`, which are words of some Literal."""
        value = self._given(names, default)
        if value not in tuple(allowed):
            self.refuse(f"{names[0]} is {value!r}", f"it must be one of {', '.join(allowed)}")
        return value

    def sequence(
        self, name: str, length: int | None, allowed: Iterable | None = None
    ) -> list | None:
        """A list with one entry a layer, or None where there is none."""
        value = self._raw((name,))
        if value is _ABSENT or value is None:
            return None
        if not isinstance(value, list):
            self.refuse(f"{name} is {value!r}", "it must be a list")
        if length is not None and len(value) != length:
            self.refuse(f"{name} has {len(value)} entries", f"there are {length} layers")
        for i, entry in enumerate(value):
            odd = isinstance(entry, bool | float)  # 1.0 == True == 1, but is no index
            if allowed is not None and (odd or entry not in allowed):
                right = f"one of {', '.join(map(str, allowed))}"
                if isinstance(allowed, range):
                    right = f"an integer from {allowed[0]} to {allowed[-1]}"
                self.refuse(f"{name}[{i}] is {entry!r}", f"it must be {right}")
        return value

    def group(self, *names: str) -> dict:
        """A nested object; empty where there is none."""
        value = self._raw(names)
        if value is _ABSENT or value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(f"{names[0]} is {value!r}", "it must be an object")
        return value

    def has(self, *names: str) -> bool:
        """Whether a value other than null stands under any of the names."""
        return self._raw(names) not in (_ABSENT, None)

    def null(self, *names: str) -> bool:
        """Whether nothing but null stands under the names; many classes take that for "derive it",
        and not for their default."""
        return self._raw(names) is None

    def inner_first(self) -> "Fields":
        """The same values, the inner one where two differ: for what the bytes do not depend on."""
        own = {name: value for name, value in self.values.items() if value is not None}
        return Fields({**self.outer, **own}, self.where)

    # ------------------------------------------------------------ saying

    def refuse(self, found: str, right: str) -> None:
        raise ValueError(f"{self.where}: {found}; {right}")

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    # ------------------------------------------------------------ inside

    def _raw(self, names: tuple[str, ...]) -> Any:
        """The value under the first of `names` that is there, inner before outer.

        Two that differ are refused, unless they say nothing about the cache.
        """
        places = ((self.values, "" if not self.outer else " inside"), (self.outer, " around it"))
        found = [(n + where, v[n]) for v, where in places for n in names if n in v]
        stated = [f for f in found if f[1] is not None]
        for name, value in stated[1:]:
            if value != stated[0][1] and not INNER_WINS.intersection(names):
                first, first_value = stated[0]
                self.refuse(
                    f"{first} is {first_value!r} but {name} is {value!r}", "they must agree"
                )
        if stated:
            return stated[0][1]
        return None if found else _ABSENT

    def _has(self, names: tuple[str, ...], default: Any) -> bool:
        return self._raw(names) is not _ABSENT or default is not None

    def _given(self, names: tuple[str, ...], default: Any) -> Any:
        value = self._raw(names)
        if value is not _ABSENT and value is not None:
            return value
        if default is _REQUIRED:
            return _ABSENT
        self.note(
            f"{names[0]} is not in the file; the family's published default, {default}, is taken"
        )
        return default
