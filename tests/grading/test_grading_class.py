"""For teachers: the report on a class, the table of points, and batches that are killed."""

import json
import os
import re
import signal
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from grading import batch, class_report
from grading.__main__ import main
from grading.checks import EXERCISES
from grading.course_notebook import ROOT, Course
from grading.mistakes_seen import mistakes
from grading.plan_of_points import planned, table
from tests.grading.test_grading_commands import row, write_notebook

GRADED = [
    ("ann", row(id="01.1", hint_used=2, seconds=1.25)),
    ("ann", row(id="01.5", points=2, earned=2, optional=True)),
    ("ben", row(id="01.1", status="wrong", earned=0, misconception="no_scale", message="No d.\nx")),
    ("cyd", row(id="01.1", status="partly", earned=2, misconception="no_scale", message="No d.")),
    ("cyd", row(id="01.5", status="unavailable", points=2, earned=0, optional=True)),
    ("<b>dee", row(id="01.1", status="error", earned=0, message="<script>alert(1)</script>")),
]


class Page(HTMLParser):
    """The cells of all tables, as text, and every tag with its attributes."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.tags, self.cell = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.cell = True

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.cell = None

    def handle_data(self, text):
        if self.cell:
            self.tables[-1][-1][-1] += text


def page_of(graded, notes=()):
    room = class_report.make_class(graded, planned(), notes)
    return class_report.as_html(room, "A class", "2026-01-02")


def test_the_report_has_scores_time_exercises_and_the_heatmap():
    page = Page(page_of(GRADED, ["eve: 01.ipynb is not graded yet"]))
    scores, exercises, heat = page.tables
    assert scores[0] == ["student", "01.1", "01.5", "points", "%", "extra", "hints", "seconds"]
    assert scores[2] == ["ann", "3 passed", "2 passed", "3/3", "100", "2", "2", "1.4"]
    assert scores[3][:4] == ["ben", "0 wrong", "-", "0/3"]
    assert scores[4][2] == "0 n/a"
    assert exercises[1] == ["01.1", "t", "3", "20", "4", "1", "1", "0", "2", "1.25", "2"]
    assert heat[0] == ["mistake", "01.1", "01.5", "in all"]
    assert heat[1:] == [
        ["no scale", "2", "", "2"],
        ["the code stopped with an error", "1", "", "1"],
    ]
    text = page_of(GRADED, ["eve: 01.ipynb is not graded yet"])
    assert "No d.<br><small>ben, cyd</small>" in text and "eve: 01.ipynb" in text


def test_with_several_chapters_no_table_is_wider_than_paper():
    """Their sums come first, then a table for each chapter, of scores and of mistakes."""
    graded = [
        ("ann", row(id=f"{c:02}.{n}", earned=n % 4)) for c in range(1, 14) for n in range(1, 6)
    ]
    graded += [("ben", row(id="02.1", status="wrong", earned=0, misconception="no_scale"))]
    graded += [("ben", row(id="03.5", points=2, earned=2, optional=True))]
    tables = Page(page_of(graded)).tables
    assert max(len(table[0]) for table in tables) == 1 + 13 + 5
    chapters = [f"{c:02}" for c in range(1, 14)]
    assert tables[0][0] == ["student", *chapters, "points", "%", "extra", "hints", "seconds"]
    assert tables[0][1][1:4] == ["7/15"] * 3 and tables[0][1][14] == "91/195"
    assert tables[0][2][1:5] == ["-", "0/3", "0/0 + 2", "-"]
    assert tables[2][0] == ["student", "02.1", "02.2", "02.3", "02.4", "02.5"]
    assert tables[2][2] == ["ben", "0 wrong", "-", "-", "-", "-"]
    assert len(tables) == 1 + 13 + 1 + 1, "scores, chapters, exercises, mistakes of chapter 02"
    assert tables[-1][1:] == [["no scale", "1", "", "", "", "", "1"]]


def test_the_report_stands_alone_and_nothing_of_a_learner_is_markup():
    text = page_of(GRADED)
    assert "<script" not in text and "<b>dee" not in text
    assert "&lt;script&gt;alert(1)" in text and "&lt;b&gt;dee" in text
    for tag, attributes in Page(text).tags:
        assert tag not in ("link", "script", "img", "iframe"), tag
        assert not {"src", "href"} & attributes.keys()
    assert "url(" not in text and "@import" not in text
    assert "prefers-color-scheme: dark" in text and "@media print" in text


def test_no_meaning_by_colour_alone():
    """A shaded cell has its number, a coloured status its word."""
    page = page_of(GRADED)
    shaded = re.findall(r'<td style="--share: ([\d.]+)">(.*?)</td>', page)
    assert shaded and all(number.isdigit() for _, number in shaded)
    assert [share for share, _ in shaded] == ["0.50", "0.25"]
    for status, inside in re.findall(r'<td class="(\w+)">(.*?)</td>', page):
        assert status == "text" or "<small>" in inside


def _luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one, other):
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_enough_in_every_theme():
    css = class_report.STYLE.read_text()
    themes = [dict(re.findall(r"--(\w+): (#\w{6})", block))
              for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL)]  # fmt: skip
    assert len(themes) == 3
    hot = [int(n) for n in re.search(r"--hot: (\d+), (\d+), (\d+)", css).groups()]
    for theme in themes:
        for name in ("ink", "soft", "good", "part", "bad"):
            assert _contrast(theme[name], theme["paper"]) >= 4.5, (name, theme)
        paper = [int(theme["paper"][i : i + 2], 16) for i in (1, 3, 5)]
        mixed = [round(0.42 * h + 0.58 * p) for h, p in zip(hot, paper)]
        darkest = "#" + "".join(f"{part:02x}" for part in mixed)
        assert _contrast(theme["ink"], darkest) >= 4.5, theme


def test_the_better_of_two_notebooks_counts_and_no_name_is_a_formula():
    twice = [
        ("ann", row(id="01.1", status="wrong", earned=0)),
        ("ann", row(id="01.1", status="partly", earned=2)),
        ("ann", row(id="01.1", status="not_attempted", earned=0)),
        ("=1+1", row(id="01.1")),
    ]
    assert batch.as_csv(twice).splitlines()[1:] == ["ann,2,2,3,0", "'=1+1,3,3,3,0"]
    seen = mistakes(batch.counted(twice))
    assert seen.names == ["another partly right answer"] and seen.students("01.1") == 2


def test_report_and_points_as_commands(tmp_path, capsys):
    source, page, marks = (tmp_path / name for name in ("a.json", "a.html", "a.csv"))
    source.write_text(batch.as_json(GRADED))
    assert main(["report", str(source), "--html", str(page), "--csv", str(marks)]) == 0
    assert "ann  3/3 + 2" in capsys.readouterr().out
    assert Page(page.read_text()).tables[0][2][0] == "ann" and marks.read_text().count("\n") == 5
    for text, words in (("[]", "nothing graded"), ("{", "not what"), ('[{"a": 1}]', "not what")):
        source.write_text(text)
        assert main(["report", str(source)]) == 2
        captured = capsys.readouterr()
        assert words in captured.err and captured.out == ""
    assert main(["report", str(tmp_path / "nothing")]) == 2
    capsys.readouterr()
    assert main(["points"]) == 0
    out = capsys.readouterr().out
    assert "| 01.1 | Causal attention that works on a chunk | 3 | 20 | 3/5 | 5/5 |" in out
    assert "| **01__attention** | | 11 + 4 | 65 + 50 | | |" in out


def test_the_table_of_points_says_what_the_checks_say():
    by_id = {one.id: one for one in planned()}
    for exercise in EXERCISES:
        assert by_id[exercise.id].points == exercise.points, exercise.id
        assert by_id[exercise.id].optional == exercise.optional, exercise.id
    assert table(planned()).count("\n") == 2 + len(by_id) + len({e[:2] for e in by_id}) + 1


def test_a_header_without_minutes_is_refused(tmp_path):
    source = tmp_path / "90__tiny.py"
    source.write_text('# %% [markdown]\n# ## 90.1 T\n\n# %% exercise_id="90.1" points=1 '
                      'tags=["exercise"]\nx = ...\n')  # fmt: skip
    with pytest.raises(ValueError, match="header of 90.1 in 90__tiny"):
        planned(Course(tmp_path))


BATCH = """
import sys
from pathlib import Path
from grading import batch
from grading.course_notebook import Course
course = Course(Path(sys.argv[2]), "tests.grading.tiny_checks")
batch.grade_folder(Path(sys.argv[1]), course, jobs=2,
                   tell=lambda task, rows: print(task.student, flush=True))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX")
def test_a_batch_killed_half_way_loses_nothing_and_grades_nothing_twice(
    notebook, tiny_course, tmp_path
):
    names = [f"student{n}" for n in range(7)]
    for n, name in enumerate(names):
        body = "return 2 * number" if n % 2 else "return number ** 2"
        notebook({1: f"def double_1(number):\n    {body}"})[1](f"class/{name}/90__tiny.ipynb")
    folder = tmp_path / "class"
    command = [sys.executable, "-c", BATCH, str(folder), str(tiny_course.sources)]
    told, kills = [], 0
    for _ in range(10):
        running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        lines = []
        while len(lines) < 2 and (line := running.stdout.readline()):
            lines.append(line.strip())
        told += lines
        if len(lines) < 2:  # it came to its end
            assert running.wait() == 0
            break
        if kills < 2:
            kills += 1
            running.send_signal(signal.SIGKILL)
        told += [line.strip() for line in running.stdout]
        running.wait()
    assert kills == 2
    journal = (folder / batch.JOURNAL).read_text()
    keys = [json.loads(line)["key"] for line in journal.split("\n") if line]
    assert len(keys) == len(set(keys)) == 7, "something was graded twice, or lost"
    assert len(told) == len(set(told)), "told twice"
    graded, left = batch.already_graded(folder, tiny_course)
    assert not left and list(dict.fromkeys(who for who, _ in graded)) == names
    statuses = [r.status for _, r in graded if r.id == "90.1"]
    assert statuses == ["wrong", "passed"] * 3 + ["wrong"]


@pytest.mark.skipif(os.name != "posix", reason="locks are POSIX")
def test_two_batches_do_not_grade_one_folder_at_once(tmp_path, capsys):
    from tests.grading.test_grading_commands import STEM, write_notebook

    write_notebook(tmp_path / "ann" / f"{STEM}.ipynb", "text")
    code = "import sys, time\nfrom pathlib import Path\nfrom grading import batch\n"
    code += (
        "with batch._held(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / batch.JOURNAL)]
    other = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        assert main(["batch", str(tmp_path)]) == 2
        assert "another batch is grading" in capsys.readouterr().err
    finally:
        other.kill()
        other.wait()


def test_odd_characters_in_names_and_messages_break_no_file(tmp_path):
    from grading.runner import plain

    odd = "a\ud800b\x1b[31m\u2028c\x00"
    graded = [(plain(odd), row(notebook=plain(odd), message=plain(odd)))]
    page_of(graded).encode("utf-8")
    batch.as_csv(graded).encode("utf-8")
    assert "\x1b" not in plain(odd) and "\u2028" not in plain(odd) and plain("ä\n") == "ä\n"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="counts processor time as POSIX does")
def test_a_class_takes_no_longer_than_promised(tmp_path):
    """100 notebooks of chapter 01 on two cores in 5 minutes: 6 processor seconds for each."""
    import resource

    count = 8
    for n in range(count):
        write_notebook(tmp_path / "class" / f"student{n}" / "01__attention.ipynb", "solution")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    graded = batch.grade_folder(tmp_path / "class", jobs=2)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert {found.status for _, found in graded} <= {"passed", "unavailable"}
    assert 0.1 * count < used < 6 * count, used
