"""The tables of `python -m tinymodels bytes`, for people. JSON is for programs."""

from collections.abc import Callable

from rich import box
from rich.console import Console
from rich.table import Table

STATUS = {
    "C": "stated by its source",
    "R": "read off a published chart",
    "D": "derived here, not published",
}

NUMBERS = ("main", "index", "window", "weights", "a sequence")  # columns never broken over lines


def show(records: list[dict], beside: list[dict], console: Console | None = None) -> None:
    """Prints one model, or two beside each other. beside: of each model what a token `adds` while
    windows fill, after how many tokens they are full (`full_after`, 0: none), and its `notes`."""
    console = console or Console(highlight=False, markup=False, emoji=False)
    console.print(_summary(records, beside))
    remarks = _remarks(records, beside)
    for line in remarks:
        console.print(f"note: {line}")
    if remarks:
        console.print()
    for record in records:
        title = f"{record['model']}: bytes by layer" if len(records) > 1 else "bytes by layer"
        console.print(_layers(record, title))
        if "explain" in record:
            _explain(record, console)
    if any("gpu" in record for record in records):
        console.print(_room(records))


def amount(value: int | float) -> str:
    """1234567 -> "1,234,567 (1.23 MB)": the exact number, and a decimal unit beside it."""
    return f"{value:,}" if value < 1000 else f"{value:,} ({decimal(value)})"


def decimal(value: int | float) -> str:
    """1234567 -> "1.23 MB"; 1 MB is 10**6 bytes."""
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return (
                f"{value / size:,.3g} {unit}"
                if value < 1000 * size
                else f"{value / size:,.0f} {unit}"
            )
    return f"{value:,} B"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=box.SIMPLE, title_justify="left", title_style="bold")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=column in NUMBERS)
    return table


def _remarks(records: list[dict], beside: list[dict]) -> list[str]:
    """What the numbers of the summary leave out."""
    found = []
    if any(r["constant"] for r in records):
        found.append(
            "a state cannot be replayed from a window: a disk keeps it beside what is counted as "
            "kept on disk, or the whole text is read again"
        )
    count = sum(b["notes"] for b in beside)
    if count and "explain" not in records[0]:
        notes = "1 note" if count == 1 else f"{count} notes"
        found.append(f"{notes} on how the file was read: --explain prints what was left to default")
    return found


def _summary(records: list[dict], beside: list[dict]) -> Table:
    table = _table(
        "memory", "", *(r["model"] for r in records), *(["differs"] * (len(records) - 1))
    )

    def row(name: str, values: list, text=str) -> None:
        cells = [text(v) for v in values]
        if len(records) > 1:
            first, second = values
            cells.append(_difference(first, second, "bytes" in name))
        table.add_row(name, *cells)

    row("context, tokens", [r["context"] for r in records], "{:,}".format)
    row("batch, sequences", [r["batch"] for r in records])
    row("rows", [r["layout"] for r in records])
    row("layers", [len(r["per_layer"]) for r in records])
    each = " of each" if any(r["batch"] > 1 for r in records) else ""
    row(f"rate, bytes per token{each}", [r["rate"] for r in records], "{:,}".format)
    row("rate is", [STATUS[r["status"]] for r in records])
    if any(b["full_after"] for b in beside):
        row(
            f"while windows fill, bytes per token{each}", [b["adds"] for b in beside], "{:,}".format
        )
        full_after = [b["full_after"] for b in beside]
        row("windows full after, tokens", full_after, lambda n: f"{n:,}" if n else "no window")
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


def _difference(a, b, in_bytes: bool) -> str:
    """How the second value stands to the first."""
    if a == b:
        return ""
    if not in_bytes or not a or not b:
        return "yes"
    return f"{a / b:.4g} x less" if a > b else f"{b / a:.4g} x more"


def _layers(record: dict, title: str) -> Table:
    """One line for all layers that keep the same."""
    table = _table(title, "count", "layers", "attention", "rows of", "main", "index", "window")
    kinds = min((_kinds(record, name) for name in (_owner, _before)), key=len)
    for (attention, owner, *held), layers in kinds.items():
        bytes_each = [f"{h:,}" for h in held]
        table.add_row(str(len(layers)), span(layers), attention, owner, *bytes_each)
    table.caption = "bytes of one layer, all sequences"
    if any(kind[1] == "1 before" for kind in kinds):
        table.caption += "; 1 before: of the layer before"
    return table


def _kinds(record: dict, owner_name: Callable) -> dict[tuple, list[int]]:
    """Layers that keep the same, and say the same of whose rows they read."""
    kinds: dict[tuple, list[int]] = {}
    for line in record["per_layer"]:
        owner = owner_name(line["owner"], line["layer"])
        bytes_of = (line["main"], line["index"], line["window"])
        kinds.setdefault((line["attention"], owner, *bytes_of), []).append(line["layer"])
    return kinds


def _owner(owner: int | None, layer: int) -> str:
    """Whose rows a layer reads, by number."""
    if owner == layer:
        return "itself"
    return "none" if owner is None else f"layer {owner}"


def _before(owner: int | None, layer: int) -> str:
    """Whose rows a layer reads, by how far before it: many layers may then say the same."""
    if owner is None or owner == layer:
        return _owner(owner, layer)
    return f"{layer - owner} before"


def span(layers: list[int]) -> str:
    """[3, 4, 5] -> "3-5"; [2, 4, 6, 8] -> "2, 4 ... 8"; others run by run: "0-3, 5-8"."""
    steps = {b - a for a, b in zip(layers, layers[1:])}
    if len(layers) > 3 and len(steps) == 1 and steps != {1}:
        return f"{layers[0]}, {layers[1]} ... {layers[-1]}"
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def _explain(record: dict, console: Console) -> None:
    """Each term as one or two lines: number, arithmetic, status, source."""
    console.print(f"{record['model']}: each term\n", style="bold")
    for t in record["explain"]:
        console.print(f"  {t['term']}")
        console.print(f"      {t['arithmetic']} = {t['value']:,} {t['unit']}")
        console.print(f"      [{t['status']}] {t['source']}", style="dim")
    console.print("\n" + "; ".join(f"{letter}: {meaning}" for letter, meaning in STATUS.items()))
    for note in record["notes"]:
        console.print(f"note: {note}")
    console.print()


def _room(records: list[dict]) -> Table:
    card = records[0]["gpu"]
    title = f"on {card['name']} cards of {card['memory'] / 1e9:.0f} GB"
    table = _table(title, "model", "weights in", "weights", "a sequence", "cards", "sequences")
    left_out = False
    for record in records:
        for fmt, fits in record["gpu"]["weights"].items():
            counted = fmt != "not counted"
            left_out = left_out or not counted
            table.add_row(
                record["model"],
                *((fmt, decimal(fits["weight_bytes"])) if counted else ("any", fmt)),
                decimal(fits["sequence_bytes"]),
                str(fits["cards"]),
                f"{fits['sequences']:,}",
            )
    table.caption = "fewest cards that hold weights and one sequence; activations are not counted"
    if left_out:
        table.caption += (
            "; where weights are not counted the whole card is given to sequences: take your "
            "weights off it"
        )
    return table
