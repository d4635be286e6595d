"""The report on a class: one HTML file with nothing outside it, for the screen and for paper.

Scores by student, one line an exercise, and a heatmap: how many students made which named
mistake in which exercise. No meaning by colour alone: every cell has its number or its word.
"""

from __future__ import annotations

import html
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grading.batch import counted
from grading.mistakes_seen import Mistakes, mistakes
from grading.plan_of_points import Planned
from grading.report import total
from grading.runner import Row

STYLE = Path(__file__).with_name("class_report.css")
_WORDS = {
    "passed": "passed", "partly": "partly", "not_attempted": "not tried", "wrong": "wrong",
    "error": "error", "timeout": "timeout", "died": "died", "unavailable": "n/a",
}  # fmt: skip


@dataclass(frozen=True)
class Class:
    """What a report is made of. `by_student`: the row that counts for each exercise."""

    by_student: Mapping[str, Mapping[str, Row]]
    planned: Mapping[str, Planned]
    notes: tuple[str, ...] = ()

    @property
    def ids(self) -> list[str]:
        return sorted({id for mine in self.by_student.values() for id in mine})

    @property
    def chapters(self) -> dict[str, list[str]]:
        """`01`, and the exercises of that chapter."""
        found: dict[str, list[str]] = {}
        for id in self.ids:
            found.setdefault(id.partition(".")[0], []).append(id)
        return found

    def rows(self, id: str) -> dict[str, Row]:
        """The students who handed in the exercise, with their rows."""
        return {who: mine[id] for who, mine in self.by_student.items() if id in mine}


def make_class(
    graded: Sequence[tuple[str, Row]], planned: Sequence[Planned], notes: Sequence[str] = ()
) -> Class:
    return Class(counted(graded), {one.id: one for one in planned}, tuple(notes))


def as_html(room: Class, title: str, date: str) -> str:
    """The whole page. Everything that comes from a learner is escaped."""
    sections = (_summary(room), _scores(room), _exercises(room), _heatmap(room), _notes(room))
    name = html.escape(title)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{name}</title>\n<style>\n{STYLE.read_text()}</style>\n</head>\n<body>\n"
        f"<h1>{name}</h1>\n<p class='date'>{html.escape(date)}</p>\n"
        + "\n".join(section for section in sections if section)
        + "\n</body>\n</html>\n"
    )


def _summary(room: Class) -> str:
    shares = [earned / points for earned, points, _ in map(_sums, room.by_student.values())
              if points]  # fmt: skip
    count = len(room.by_student)
    text = f"{count} student{'' if count == 1 else 's'}, {len(room.ids)} exercises."
    if shares:
        text += (
            f" Points earned: median {100 * statistics.median(shares):.0f} %, "
            f"from {100 * min(shares):.0f} % to {100 * max(shares):.0f} %."
        )
    return f"<p>{text}</p>"


def _sums(mine: Mapping[str, Row]) -> tuple[float, float, float]:
    return total(list(mine.values()))


SCORES = (
    "Optional exercises are extra, what this machine cannot run (n/a) does not count. Hints: how "
    "many were opened. Seconds: what the checks took."
)


def _scores(room: Class) -> str:
    """One table; or, with several chapters, their sums and then a table each: paper is narrow."""
    chapters = room.chapters
    if len(chapters) == 1:
        said = f"Points and status of every exercise. {SCORES}"
        return _table("Scores", said, ["student", *room.ids, *SUMS], _lines(room, room.ids, True))
    lines = []
    for who, mine in sorted(room.by_student.items()):
        cells = []
        for ids in chapters.values():
            earned, points, extra = total([mine[id] for id in ids if id in mine])
            more = f" <small>+ {extra:g}</small>" if extra else ""
            cell = f"<td>{earned:g}/{points:g}{more}</td>"
            cells.append(cell if any(id in mine for id in ids) else _score(None))
        lines.append(_line(who, [*cells, *_sum_cells(mine)]))
    said = f"Points in every chapter; tables of their exercises follow. {SCORES}"
    return _table("Scores", said, ["student", *chapters, *SUMS], lines) + "\n".join(
        _table(f"Chapter {chapter}", "Points and status.", ["student", *ids], _lines(room, ids))
        for chapter, ids in chapters.items()
    )


SUMS = ("points", "%", "extra", "hints", "seconds")


def _lines(room: Class, ids: Sequence[str], sums: bool = False) -> list[str]:
    return [
        _line(who, [*(_score(mine.get(id)) for id in ids), *(_sum_cells(mine) if sums else ())])
        for who, mine in sorted(room.by_student.items())
    ]


def _line(who: str, cells: Sequence[str]) -> str:
    return f'<tr><th scope="row">{html.escape(who)}</th>{"".join(cells)}</tr>'


def _sum_cells(mine: Mapping[str, Row]) -> list[str]:
    earned, points, extra = _sums(mine)
    share = f"{100 * earned / points:.0f}" if points else ""
    hints = sum(row.hint_used for row in mine.values())
    seconds = sum(row.seconds for row in mine.values())
    sums = (f"{earned:g}/{points:g}", share, f"{extra:g}", f"{hints}", f"{seconds:.1f}")
    return [f"<td>{text}</td>" for text in sums]


def _score(row: Row | None) -> str:
    if row is None:
        return "<td class='none'>-</td>"
    word = _WORDS.get(row.status, row.status)
    return f'<td class="{row.status}">{row.earned:g} <small>{html.escape(word)}</small></td>'


def _exercises(room: Class) -> str:
    head = ["exercise", "title", "points", "minutes", "handed in", "passed", "partly",
            "not tried", "wrong or stopped", "mean points", "hints"]  # fmt: skip
    lines = []
    for id in room.ids:
        rows = [row for row in room.rows(id).values() if row.status != "unavailable"]
        any_row = next(iter(room.rows(id).values()))
        minutes = f"{room.planned[id].minutes}" if id in room.planned else ""
        counts = [sum(row.status == status for row in rows)
                  for status in ("passed", "partly", "not_attempted")]  # fmt: skip
        mean = f"{statistics.mean(row.earned for row in rows):.2f}" if rows else ""
        title = f"{any_row.title}{' (optional)' if any_row.optional else ''}"
        cells = [f"{any_row.points:g}", minutes, len(rows), *counts, len(rows) - sum(counts),
                 mean, sum(row.hint_used for row in rows)]  # fmt: skip
        lines.append(
            f'<tr><th scope="row">{id}</th><td class="text">{html.escape(title)}</td>'
            + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        )  # fmt: skip
    return _table("Exercises", "Minutes are those that the notebook announces.", head, lines)


def _heatmap(room: Class) -> str:
    """Rows are mistakes, columns exercises, numbers students; the shade repeats the number."""
    seen = mistakes(room.by_student)
    if not seen.names:
        return "<section><h2>Mistakes</h2><p>No mistake was seen.</p></section>"
    tables = []
    for chapter, ids in room.chapters.items():
        lines = []
        for name in seen.names:
            if not (all_of_them := sum(seen.count(name, id) for id in ids)):
                continue
            cells = [_heat(seen.count(name, id), seen.students(id)) for id in ids]
            kind = "" if seen.is_named(name) else " class='unnamed'"
            lines.append(
                f"<tr{kind}><th scope='row'>{html.escape(name.replace('_', ' '))}</th>"
                f"{''.join(cells)}<td><b>{all_of_them}</b></td></tr>"
            )
        if not lines:
            continue
        where = f", chapter {chapter}" if len(room.chapters) > 1 else ""
        tables.append(_table(
            f"Mistakes by exercise{where}",
            "How many students; the stronger the colour, the larger the share of those who handed "
            "the exercise in. Below the named mistakes: answers that have no name.",
            ["mistake", *ids, "in all"], lines, "heat",
        ))  # fmt: skip
    return "\n".join(tables) + _explained(seen, room)


def _heat(count: int, students: int) -> str:
    if not count:
        return "<td></td>"
    return f'<td style="--share: {count / students:.2f}">{count}</td>'


def _explained(seen: Mistakes, room: Class) -> str:
    """What each mistake is, and who made it: for the talk with the class."""
    items = []
    for id in room.ids:
        for name in seen.names:
            if not (who := seen.who(name, id)):
                continue
            message = html.escape(seen.message(name, id))
            if not seen.is_named(name):
                message = f"For example: {message}"
            students = html.escape(", ".join(who))
            items.append(
                f"<dt>{id}, {html.escape(name.replace('_', ' '))} ({len(who)})</dt>"
                f"<dd>{message}<br><small>{students}</small></dd>"
            )
    return f"<section><h2>What they are</h2><dl>{''.join(items)}</dl></section>"


def _notes(room: Class) -> str:
    if not room.notes:
        return ""
    items = "".join(f"<li>{html.escape(note)}</li>" for note in room.notes)
    return f"<section><h2>Left out</h2><ul>{items}</ul></section>"


def _table(
    title: str, caption: str, head: Sequence[str], lines: Sequence[str], kind: str = ""
) -> str:
    text = " class='text'"
    names = "".join(
        f"<th scope='col'{text * (name == 'title')}>{html.escape(name)}</th>" for name in head
    )
    return (
        f"<section><h2>{title}</h2>\n<div class='wide'><table class='{kind}'>"
        f"<caption>{caption}</caption>\n<thead><tr>{names}</tr></thead>\n<tbody>\n"
        + "\n".join(lines) + "\n</tbody></table></div></section>"
    )  # fmt: skip
