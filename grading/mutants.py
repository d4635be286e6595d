"""Mechanical wrong answers: the solution with one small thing changed.

Named misconceptions are the mistakes we thought of; mutants are the ones we did not. A
check is good when nearly none of them passes. One that does is either a hole in the check
or no mistake at all (`x * 1` for `x / 1`), and has to be looked at.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

_OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.MatMult: ast.Mult,
}  # fmt: skip
_COMPARISONS = {
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_NAMES = {
    "argmax": "argmin", "amax": "amin", "maximum": "minimum", "softmax": "log_softmax",
    "zeros_like": "ones_like", "sum": "mean", "exp": "abs", "cat": "stack",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    source: str
    line: int
    change: str  # "a / b  ->  a * b"


def mutants(source: str, lines: frozenset[int]) -> Iterator[Mutant]:
    """Every mutant of `source` with one change in one of `lines`."""
    tree = ast.parse(source)
    for index, node in enumerate(ast.walk(tree)):
        line = getattr(node, "lineno", None)
        if line not in lines:
            continue
        for variant in range(_count(node)):
            changed = copy.deepcopy(tree)
            target = next(n for i, n in enumerate(ast.walk(changed)) if i == index)
            before = ast.unparse(target)
            _change(target, variant)
            after = ast.unparse(target)
            if before != after:
                text = ast.unparse(ast.fix_missing_locations(changed)) + "\n"
                yield Mutant(text, line, f"{before}  ->  {after}")


def _count(node: ast.AST) -> int:
    """How many different changes this node allows."""
    if isinstance(node, ast.Constant):
        is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        return 2 if is_number else int(isinstance(node.value, bool))
    if isinstance(node, ast.BinOp):
        return int(type(node.op) in _OPERATORS)
    if isinstance(node, ast.Compare):
        return int(type(node.ops[0]) in _COMPARISONS)
    if isinstance(node, ast.UnaryOp):
        return int(isinstance(node.op, ast.USub))
    if isinstance(node, ast.Attribute):
        return int(node.attr in _NAMES)
    if isinstance(node, ast.Call):
        return int(len(node.args) > 1)
    if isinstance(node, ast.Tuple):
        return int(len(node.elts) == 2 and isinstance(node.ctx, ast.Load))
    return 0


def _change(node: ast.AST, variant: int) -> None:
    match node:
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int() | float() as number):
            node.value = number + (1 if variant == 0 else -1)
        case ast.BinOp():
            node.op = _OPERATORS[type(node.op)]()
        case ast.Compare():
            node.ops[0] = _COMPARISONS[type(node.ops[0])]()
        case ast.UnaryOp():
            node.op = ast.UAdd()
        case ast.Attribute():
            node.attr = _NAMES[node.attr]
        case ast.Call():
            node.args[0], node.args[1] = node.args[1], node.args[0]
        case ast.Tuple():
            node.elts.reverse()
