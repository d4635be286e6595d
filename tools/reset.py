"""`course.py reset STEM`: an exercise notebook as shipped, after a dated backup of yours.

As shipped means built again from sources/, so it needs neither git nor the network.
"""

import sys
from pathlib import Path

from tools import build as building

ROOT = Path(__file__).resolve().parent.parent


def exercises(root: Path) -> dict[str, building.Target]:
    """Return the exercise notebooks that can be put back, by stem."""
    found = [target for target in building.targets(root) if target.folder == building.EXERCISES]
    return {target.stem: target for target in found}


def reset(root: Path, stem: str) -> str:
    """Put the exercise notebook of `stem` back; return a sentence on what was done.

    Raises ValueError, naming the stems there are, where there is no such notebook.
    """
    known = exercises(root)
    if stem not in known:
        stems = ", ".join(sorted(known)) or "none yet"
        raise ValueError(f"There are no exercises {stem!r}; there are: {stems}.")
    target = known[stem]
    before = target.path.read_bytes() if target.path.exists() else None
    backups = set((root / "backups").glob("*.ipynb"))
    building.build(target)
    if before == target.path.read_bytes():
        return f"{target.name} is as shipped already."
    saved = set((root / "backups").glob("*.ipynb")) - backups
    kept = f"; yours is kept in {', '.join(sorted(f'backups/{path.name}' for path in saved))}"
    return f"{target.name} is as shipped again{kept if saved else ''}."


def main(arguments: list[str]) -> int:
    """Reset one notebook; return 0, or 2 with a sentence where that cannot be done."""
    if arguments in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    try:
        if len(arguments) != 1:
            stems = ", ".join(sorted(exercises(ROOT)))
            raise ValueError(f"Say which exercises to reset, one of: {stems}.")
        print(reset(ROOT, arguments[0]))
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
