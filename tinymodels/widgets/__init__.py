"""The pictures one can move: each a pure function of its settings, plus a thin shell.

    explorer.py       layers, heads, bytes, context -> bytes a token and in all
    ladder.py         from 389,120 bytes a token to 890, one idea at a time
    xray.py           a decode, step by step: rows written, read, computed again
    lens.py           what a model would say after each layer, at each token
    additions.py      what each layer adds to the stream, and what changes without it
    router_load.py    how many choices fall on each expert while a bias evens them out
    bill.py           a model on cards: what fits, what writing a token waits for
    rank_error.py     how much of a model's keys and values can be left out
    which_entries.py  what each layer of a V3.2 model reads for a question, and where its answer is
    tower.py          encoder and decoder: who runs at each moment of a request
    floors.py         V4.1's forty layers: who owns entries, who borrows whose
    agents_day.py     memory for stored prefixes, tokens found again, dollars
    frontier.py       what each generation can do beside what it keeps, and who is worth it
    ledger_table.py   every chapter's number: formula, measured, published

`plot.py` sets the look of every figure, live or still; `base.py` is the shell.
`from tinymodels.widgets import BytesExplorer, Ladder, XRay, record, ledger_widget` works too,
and imports only what is asked for.
"""

from importlib import import_module

_HOMES = {
    "BytesExplorer": "explorer",
    "Ladder": "ladder",
    "XRay": "xray",
    "record": "xray",
    "LogitLens": "lens",
    "lens_reading": "lens",
    "Additions": "additions",
    "RouterLoad": "router_load",
    "Bill": "bill",
    "RankError": "rank_error",
    "WhichEntries": "which_entries",
    "Floors": "floors",
    "Tower": "tower",
    "Frontier": "frontier",
    "ledger_widget": "ledger_table",
    "bytes_text": "plot",
    "figure": "plot",
    "show": "plot",
}

__all__ = list(_HOMES)


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
