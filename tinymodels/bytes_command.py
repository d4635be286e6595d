"""`python -m tinymodels bytes NAME|config.json`: what a model's memory costs.

Reads the arguments, asks the ledger, prints a table or JSON. Answers in well under a second:
no torch, no numpy, and the table's library only where a table is printed.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import ledger
from .bytes_terms import Term, filling, terms
from .config import ModelConfig, RowFormat
from .published import PUBLISHED, get

DESCRIPTION = "Bytes of a model's memory: per token, and held after n tokens."
BEYOND = "note: {n:,} tokens are more than the {own:,} that {name} is made for"


class UsageError(Exception):
    """One sentence for stderr; the command then exits with 2."""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        if message.startswith("unrecognized"):
            own = (a.option_strings[-1] for a in self._actions if a.option_strings)
            message = f"{message}; the options are {', '.join(n for n in own if n != '--help')}"
        raise UsageError(message)


@dataclass(frozen=True)
class Subject:
    """A model to count: its shapes, where they come from, and the rows to count it in.

    layout is what JSON says: "deployed", "bf16" or "6-bit".
    """

    config: ModelConfig
    status: str
    source: str
    layout: str
    row: RowFormat | None
    kv_bits: int | None

    @property
    def rows(self) -> dict:
        return {"row": self.row, "kv_bits": self.kv_bits}


def parser() -> argparse.ArgumentParser:
    p = _Parser(prog="python -m tinymodels bytes", description=DESCRIPTION, allow_abbrev=False)
    p.add_argument(
        "model",
        metavar="NAME|config.json",
        help=f"one of {', '.join(PUBLISHED)}; or a released config.json, or its folder",
    )
    p.add_argument("--context", metavar="N", help="tokens held (default: the model's own context)")
    p.add_argument("--batch", metavar="B", default="1", help="sequences (default 1)")
    p.add_argument("--gpu", metavar="NAME", help=f"what fits on a card: {', '.join(ledger.GPUS)}")
    p.add_argument(
        "--kv-bits", metavar="K", help="bits of every cached value, without scales (fp8: 8)"
    )
    p.add_argument(
        "--layout",
        choices=("deployed", "bf16"),
        help="rows to count in: a published model's own, or plain bf16; a config.json is bf16 "
        "unless it declares a format",
    )
    p.add_argument("--json", action="store_true", help="print JSON")
    p.add_argument("--explain", action="store_true", help="print each term, its source and status")
    p.add_argument("--diff", metavar="OTHER", help="a second model beside the first")
    return p


def main(arguments: list[str]) -> int:
    """Prints the answer and returns 0; on bad input one sentence on stderr, and 2."""
    try:
        options = parser().parse_args(arguments)
        context = None if options.context is None else _integer("--context", options.context, 0)
        batch = _integer("--batch", options.batch, 1)
        subject = _subject(options.model, options)
        n = subject.config.context if context is None else context
        records = [record(subject, n, batch, options.gpu, options.explain)]
        if options.diff is not None:
            other = _subject(options.diff, options)
            records.append(record(other, n, batch, options.gpu, options.explain))
    except (UsageError, ValueError) as problem:
        print(f"tinymodels bytes: {_one_line(problem)}", file=sys.stderr)
        return 2
    subjects = [subject] if options.diff is None else [subject, other]
    for s, r in zip(subjects, records):
        if n > s.config.context and r["exact"]["total"] > r["constant"]:  # states alone have no end
            print(BEYOND.format(n=n, own=s.config.context, name=s.config.name), file=sys.stderr)
    if options.json:
        print(json.dumps(_joined(records), indent=1))
    else:
        from .bytes_table import show

        show(records, [beside(s) for s in subjects])
    return 0


# ---------------------------------------------------------------- arguments


MOST = 10**15  # more is a slip, and no number that a table could show


def _integer(option: str, text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or value < least:
        raise UsageError(f"{option} is {text!r}; it must be an integer >= {least}")
    if value > MOST:
        raise UsageError(f"{option} has {len(text)} digits; at most {MOST:,} is counted")
    return value


def _subject(name: str, options: argparse.Namespace) -> Subject:
    bits = None if options.kv_bits is None else _integer("--kv-bits", options.kv_bits, 1)
    if bits is not None and bits > 64:
        raise UsageError(f"--kv-bits is {bits}; a cached value takes 1 to 64 bits")
    if bits is not None and options.layout == "bf16":
        raise UsageError("--layout bf16 and --kv-bits both choose the row; give one of them")
    config, status, source = _model(name)
    if bits is not None:
        layout = f"{bits}-bit"
    elif options.layout == "bf16":
        layout = "bf16"
    else:
        layout = _own_layout(config, published=name in PUBLISHED)
    row: Any = "bf16" if layout == "bf16" else None
    if name in PUBLISHED and (bits is not None or (row and row != config.row)):
        status, source = "D", f"{config.source}; counted in {layout} rows"
    return Subject(config, status, source, layout, row, bits)


def _own_layout(config: ModelConfig, published: bool) -> str:
    if published:
        return "deployed"
    return "bf16" if config.kv_bits is None else f"{config.kv_bits}-bit"


def _model(name: str) -> tuple[ModelConfig, str, str]:
    """(shapes, status, source) of a published name or of a file that holds a configuration."""
    if name in PUBLISHED:
        published = get(name)
        return published.config, published.rate.status, published.rate.source
    path = Path(name)
    if not (path.exists() or path.suffix == ".json" or len(path.parts) > 1):
        get(name)  # raises: names the valid ones and the nearest
    from .families import load

    config = load(path)
    return config, "D", config.source


def _one_line(problem: Exception) -> str:
    return " ".join(str(problem).split())


# ---------------------------------------------------------------- the answer


def record(subject: Subject, context: int, batch: int, gpu: str | None, explain: bool) -> dict:
    """What `--json` prints. `rate` is per sequence; `exact` and `per_layer` times batch."""
    config, rows = subject.config, subject.rows
    held = ledger.exact(config, context, batch, **rows)
    answer = {
        "model": config.name,
        "status": subject.status,
        "context": context,
        "batch": batch,
        "rate": ledger.rate(config, **rows),
        "exact": held,
        "persistent": held["global"],
        "per_layer": ledger.per_layer(config, context, batch, **rows),
        "constant": ledger.constant(config, batch),
        "layout": subject.layout,
        "source": subject.source,
    }
    if gpu is not None:
        answer["gpu"] = _fits(subject, context, gpu)
    if explain:
        found = terms(config, subject.status, subject.source, **rows)
        answer["explain"] = [_term(t) for t in found]
        answer["notes"] = list(config.notes)
    return answer


def beside(subject: Subject) -> dict:
    """What the table says beyond the record."""
    adds, full_after = filling(subject.config, **subject.rows)
    return {"adds": adds, "full_after": full_after, "notes": len(subject.config.notes)}


def _term(term: Term) -> dict:
    return {
        "term": term.name,
        "arithmetic": term.arithmetic,
        "value": term.value,
        "unit": term.unit,
        "status": term.status,
        "source": term.source,
    }


def _fits(subject: Subject, context: int, gpu: str) -> dict:
    """How many sequences fit beside the weights, in BF16 and in FP8."""
    card = ledger.gpu(gpu)
    answer: dict[str, Any] = {"name": card.name, "memory": card.memory, "weights": {}}
    for fmt in ("bf16", "fp8"):
        try:
            weights = ledger.weight_bytes(subject.config, fmt)
        except ValueError:  # shapes not all known: the memory alone is weighed
            fmt, weights = "not counted", 0
        room = ledger.room(subject.config, card, context, weights, **subject.rows)
        answer["weights"][fmt] = {
            "cards": room.cards,
            "weight_bytes": room.weight_bytes,
            "sequence_bytes": room.sequence_bytes,
            "sequences": room.sequences,
        }
    return answer


def _joined(records: list[dict]) -> dict:
    """One record, or the first with the second and what differs under `diff`."""
    if len(records) == 1:
        return records[0]
    first, other = records
    differs = {
        key: [first[key], other[key]]
        for key in first
        if key in other and key not in ("per_layer", "explain", "gpu") and first[key] != other[key]
    }
    return {**first, "diff": {"other": other, "differs": differs}}
