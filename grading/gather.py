"""The source of a learner's function together with what it needs to run elsewhere.

A function in a notebook leans on the notebook: imports, small constants, other functions
in other cells. `gather` follows the names it uses and writes them all into one text that
defines the function when it is executed in an empty namespace.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from typing import Any

_PLAIN = (int, float, str, bool, bytes, type(None))


class NotGathered(ValueError):
    """The function leans on something that cannot be written down as source."""


def gather(answer: Any) -> tuple[str, str]:
    """-> (source, name). Raises NotGathered, naming what stands in the way."""
    target = inspect.unwrap(answer) if callable(answer) else answer
    name = getattr(target, "__name__", None)
    if not name:
        raise NotGathered(f"a {type(answer).__name__} has no source")
    pieces: dict[str, str] = {}
    _collect(name, answer, pieces)
    imports = [text for text in pieces.values() if text.startswith(("import ", "from "))]
    others = [text for text in pieces.values() if text not in imports]
    lines = ["from __future__ import annotations", "", *imports, "", *others]
    return "\n".join(lines) + "\n", name


def _collect(name: str, value: Any, pieces: dict[str, str]) -> None:
    """Add the source of `value`, known as `name`, after the source of what it uses."""
    if name in pieces or name == "__builtins__":
        return
    if isinstance(value, types.ModuleType):
        pieces[name] = f"import {value.__name__} as {name}"
    elif isinstance(value, _PLAIN):
        pieces[name] = f"{name} = {value!r}"
    elif _from_a_package(value):
        pieces[name] = f"from {value.__module__} import {value.__qualname__} as {name}"
    elif inspect.isfunction(inspect.unwrap(value)) or inspect.isclass(value):
        _collect_definition(name, value, pieces)
    else:
        raise NotGathered(f"{name} is a {type(value).__name__}, known only in the notebook")


def _collect_definition(name: str, value: Any, pieces: dict[str, str]) -> None:
    target = inspect.unwrap(value)
    try:
        source = textwrap.dedent(inspect.getsource(target))
    except (OSError, TypeError) as error:
        raise NotGathered(f"the source of {name} is not to be found") from error
    pieces[name] = ""  # here already: a function may call itself
    functions = [target] if inspect.isfunction(target) else [
        inspect.unwrap(item) for item in vars(target).values() if callable(item)
    ]  # fmt: skip
    for function in functions:
        if not inspect.isfunction(function):
            continue
        if function.__closure__ and set(function.__code__.co_freevars) - {"__class__"}:
            raise NotGathered(f"{name} was made inside another function")
        for used in sorted(_names(function.__code__)):
            if used in function.__globals__:
                _collect(used, function.__globals__[used], pieces)
    if not _is_a_definition(source):
        raise NotGathered(f"{name} is no def or class of its own")
    del pieces[name]
    pieces[name] = source


def _is_a_definition(source: str) -> bool:
    """False for a lambda: what comes as its source is whatever statement stands around it."""
    try:
        statements = ast.parse(source).body
    except SyntaxError:
        return False
    return len(statements) == 1 and isinstance(
        statements[0], ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    )


def _names(code: types.CodeType) -> set[str]:
    """Names a function may look up in its globals, inner functions' names too."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _from_a_package(value: Any) -> bool:
    module = getattr(value, "__module__", None)
    qualname = getattr(value, "__qualname__", "<")
    return bool(module) and module != "__main__" and "<" not in qualname and "." not in qualname
