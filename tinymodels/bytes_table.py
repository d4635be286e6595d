"""The tables of `python -m tinymodels bytes`, for people. JSON is for programs."""

from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

STATUS = {
    "C": "stated by its source",
    "R": "read off a published chart",
    "D": "derived here, not published",
}


def show(records: list[dict], console: Console | None = None) -> None:
    """Prints one model, or two beside each other."""
    console = console or Console(highlight=False)
    console.print(_summary(records))
    for record in records:
        title = f"{record['model']}: bytes by layer" if len(records) > 1 else "bytes by layer"
        console.print(_layers(record, title))
        if "explain" in record:
            console.print(_explained(record))
            for note in record["notes"]:
                console.print(Text(f"note: {note}"))
    if any("gpu" in record for record in records):
        console.print(_room(records))


def amount(value: int | float) -> str:
    """1234567 -> "1,234,567"; from 1,000 on also in decimal units: "(1.23 MB)"."""
    exact = f"{value:,}"
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{exact} ({value / size:.3g} {unit})" if value < 1000 * size else exact
    return exact


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=box.SIMPLE, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    return table


def _summary(records: list[dict]) -> Table:
    table = _table(
        "memory", "", *(r["model"] for r in records), *(["differs"] * (len(records) - 1))
    )

    def row(name: str, values: list, text=str) -> None:
        cells = [text(v) for v in values]
        if len(records) > 1:
            cells.append(_difference(*values))
        table.add_row(name, *cells)

    row("context, tokens", [r["context"] for r in records], "{:,}".format)
    row("batch, sequences", [r["batch"] for r in records])
    row("rows", [r["layout"] for r in records])
    row("layers", [len(r["per_layer"]) for r in records])
    row("rate, bytes per token", [r["rate"] for r in records], "{:,}".format)
    row("rate is", [STATUS[r["status"]] for r in records])
    for key, name in (
        ("global", "entries and keys"),
        ("window", "windows"),
        ("open_state", "open groups"),
    ):
        row(f"{name}, bytes", [r["exact"][key] for r in records], amount)
    row("constant state, bytes", [r["constant"] for r in records], amount)
    row("total, bytes", [r["exact"]["total"] for r in records], amount)
    row("kept on disk, bytes", [r["persistent"] for r in records], amount)
    return table


def _difference(a, b) -> str:
    """How the second value stands to the first."""
    if a == b:
        return ""
    if isinstance(a, str) or not a or not b:
        return "yes"
    return f"{a / b:.4g} x less" if a > b else f"{b / a:.4g} x more"


def _layers(record: dict, title: str) -> Table:
    table = _table(title, "layers", "attention", "reads rows of", "main", "index", "window")

    def kind(line: dict) -> tuple:
        owner = "own" if line["owner"] == line["layer"] else line["owner"]
        return line["attention"], owner, line["main"], line["index"], line["window"]

    for (attention, owner, *held), lines in groupby(record["per_layer"], kind):
        numbers = [line["layer"] for line in lines]
        span = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}, each"
        table.add_row(span, attention, str(owner), *(f"{h:,}" for h in held))
    return table


def _explained(record: dict) -> Table:
    table = _table(
        f"{record['model']}: each term", "term", "arithmetic", "value", "status", "source"
    )
    for t in record["explain"]:
        table.add_row(
            t["term"], t["arithmetic"], f"{t['value']:,} {t['unit']}", t["status"], t["source"]
        )
    table.caption = "; ".join(f"{letter}: {meaning}" for letter, meaning in STATUS.items())
    return table


def _room(records: list[dict]) -> Table:
    card = records[0]["gpu"]
    title = f"on {card['name']} cards of {card['memory'] / 1e9:.0f} GB"
    table = _table(title, "model", "weights in", "weights", "a sequence", "cards", "sequences")
    for record in records:
        for fmt, fits in record["gpu"]["weights"].items():
            table.add_row(
                record["model"],
                fmt,
                amount(fits["weight_bytes"]),
                amount(fits["sequence_bytes"]),
                str(fits["cards"]),
                f"{fits['sequences']:,}",
            )
    table.caption = "fewest cards that hold weights and one sequence; activations are not counted"
    return table
