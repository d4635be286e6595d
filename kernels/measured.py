"""What `python -m kernels bench` measured on a GPU, for a text to show.

Results lie in `kernels/results/`, one file a day and card. Where none lies there, nobody has
measured, and that is what is said.
"""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
NOT_YET = "not measured yet on a GPU (python -m kernels bench)"


def latest(folder: Path = RESULTS) -> dict | None:
    """The newest results, or None. Raises ValueError for a file that holds no results."""
    paths = sorted(path for path in folder.glob("*.json") if not path.stem.endswith("-gpu"))
    if not paths:
        return None
    try:
        found = json.loads(paths[-1].read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{paths[-1]} is no JSON: {error}") from None
    if not isinstance(found, dict) or not {"date", "card", "kernels"} <= set(found):
        raise ValueError(f"{paths[-1]} holds no results; expected date, card and kernels")
    return found


def sentence(kernel: str, shape: str | None = None, folder: Path = RESULTS) -> str:
    """One kernel's speed as a line: its first shape, or the one with this label."""
    found = latest(folder)
    rows = [row for row in (found or {}).get("kernels", ())
            if row["kernel"] == kernel and shape in (None, row["shape"])]
    if not rows:
        return f"{kernel}: {NOT_YET}"
    row = rows[0]
    rival = "" if row["sdpa"] is None else f", torch's own takes {row['sdpa'] * 1e6:,.0f}"
    return (f"{kernel}, {row['shape']}, {row['dtype']}: {row['seconds'] * 1e6:,.0f} microseconds"
            f"{rival}; {row['of_floor']:.0%} of what the card can do "
            f"({found['card']['name']}, {found['date']})")
