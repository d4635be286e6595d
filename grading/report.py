"""Rows on the screen and in files."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from grading.runner import Row

_STYLES = {"passed": "green", "partly": "yellow", "not_attempted": "dim", "unavailable": "dim"}


def total(rows: Sequence[Row]) -> tuple[float, float, float]:
    """-> (earned, points, extra): optional exercises are extra, unavailable ones left out."""
    counted = [row for row in rows if row.status != "unavailable"]
    earned = sum(row.earned for row in counted if not row.optional)
    points = sum(row.points for row in counted if not row.optional)
    return earned, points, sum(row.earned for row in counted if row.optional)


def all_passed(rows: Sequence[Row]) -> bool:
    """Every exercise passed; an optional one may be left undone, but not be wrong."""
    accepted = {"passed", "unavailable"}
    return all(
        row.status in accepted or (row.optional and row.status == "not_attempted") for row in rows
    )


def print_table(rows: Sequence[Row], console: Console | None = None) -> None:
    """One table a notebook with its total, and below it what the checks saw."""
    console = console or Console(highlight=False)
    for notebook in dict.fromkeys(row.notebook for row in rows):
        mine = [row for row in rows if row.notebook == notebook]
        earned, points, extra = total(mine)
        table = Table(title=escape(notebook), title_justify="left", caption_justify="left")
        table.caption = f"{earned:g} of {points:g} points" + (f" + {extra:g} extra" * bool(extra))
        for name in ("id", "exercise", "status"):
            table.add_column(name, no_wrap=name != "exercise")
        table.add_column("points", justify="right", no_wrap=True)
        for row in mine:
            style = _STYLES.get(row.status, "red")
            title = f"{row.title} (optional)" if row.optional else row.title
            status = f"[{style}]{row.status.replace('_', ' ')}[/]"
            table.add_row(row.id, escape(title), status, f"{row.earned:g}/{row.points:g}")
        console.print(table)
        for row in mine:
            if row.message and row.status != "not_attempted":
                console.print(f"{row.id}: {row.message}", markup=False)


def write_json(rows: Sequence[Row], path: Path) -> None:
    text = json.dumps([row.as_dict() for row in rows], indent=1, ensure_ascii=False)
    write_whole(path, text + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write a file in one step, so that nobody ever reads half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent or ".", suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
