"""Has the learner begun? An untouched placeholder is not a wrong answer."""

from __future__ import annotations

import ast
import dis
import inspect
import textwrap
from typing import Any

_EMPTY_OPS = {
    "RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST", "COPY_FREE_VARS",
}  # fmt: skip


def not_attempted(answer: Any, placeholder: bool = False) -> bool:
    """True for `...`, None, and functions or classes whose bodies are still empty.

    With `placeholder` the exercise has code around the gap: then a bare `...` (as a
    statement or as an assigned value) that is still anywhere in the source counts.
    """
    if answer is ... or answer is None:
        return True
    if placeholder:
        return _has_placeholder(answer)
    if inspect.isclass(answer):
        bodies = [item for item in vars(answer).values() if inspect.isfunction(item)]
        return bool(bodies) and all(_is_empty(body) for body in bodies)
    return inspect.isfunction(answer) and _is_empty(answer)


def _is_empty(function: Any) -> bool:
    """Nothing but a docstring, `...`, `pass` or `return None`, whatever the decorators."""
    function = inspect.unwrap(function)
    instructions = list(dis.get_instructions(function.__code__))
    if any(step.opname not in _EMPTY_OPS for step in instructions):
        return False
    loaded = [s.argval for s in instructions if s.opname in ("LOAD_CONST", "RETURN_CONST")]
    return all(value is None or value is ... for value in loaded)


def _has_placeholder(answer: Any) -> bool:
    tree = _tree(answer)
    return tree is not None and any(_is_gap(node) for node in ast.walk(tree))


def _tree(answer: Any) -> ast.AST | None:
    inner = getattr(answer, "fn", answer)  # a triton kernel wraps the function it was made of
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(inner))))
    except (OSError, TypeError, SyntaxError):
        return None


def _is_gap(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr | ast.Assign):
        value = node.value
        return isinstance(value, ast.Constant) and value.value is ...
    return False
