"""README.md promises only commands and files that exist; CI runs what it shows."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

import course
from tools import readme_picture

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def named_commands(text: str) -> set[str]:
    """Return the words that follow `course.py` in a text."""
    return set(re.findall(r"course\.py ([a-z]+)", text))


def linked_files(text: str) -> set[str]:
    """Return the targets of Markdown links and pictures that are files of this repository."""
    return {target for target in re.findall(r"\]\(([^)]+)\)", text) if "://" not in target}


def test_the_two_commands_come_first():
    block = README.split("```")[1].strip().splitlines()
    assert [line.split("#")[0].strip() for line in block] == [
        "python3 course.py lab", "python3 course.py test",
    ]
    assert len(README.split("```")[0].splitlines()) <= 3


def test_named_commands_exist():
    assert {"lab", "test", "grade", "status", "reset", "doctor"} <= named_commands(README)
    assert named_commands(README) <= set(course.COMMANDS)
    assert named_commands(course.__doc__) == set(course.COMMANDS)


def test_linked_files_exist():
    files = linked_files(README)
    assert files and all((ROOT / file).is_file() for file in files)
    assert linked_files("[a](no/such.md) [b](https://x.org)") == {"no/such.md"}


def broken_lines(text: str) -> list[str]:
    """The first of two lines of one paragraph: shown, their break is a space."""
    text = re.sub(r"^( *)```.*?^ *```$", "", text, flags=re.M | re.S)
    return re.findall(r"^(.+)\n(?! *[-#>|]|\n)(?=.)", text, re.M)


def test_chinese_paragraphs_are_one_line_each():
    assert broken_lines((ROOT / "README.zh-CN.md").read_text(encoding="utf-8")) == []
    assert broken_lines("一章地\n搭出\n\n- 甲\n- 乙\n\n```\na\nb\n```\n") == ["一章地"]


def test_variables_are_explained_where_they_are_needed():
    from tools import doctor

    for name in ("COURSE_TORCH", "COURSE_TORCH_INDEX"):
        for text in (README, course.__doc__, doctor.TORCH_WORDS):
            assert re.search(rf"{name}\b", text)


def test_picture_shows_the_ledgers_numbers():
    points = readme_picture.series()
    file = readme_picture.PICTURE.relative_to(ROOT).as_posix()
    assert f"![{readme_picture.alt(points)}]({file})" in README
    assert (points[0][1], points[-1][1]) == (389_120, 890)
    assert len(points) == len(readme_picture.CHANGES)
    labels = [text.get_text() for text in readme_picture.draw(points).axes[0].texts]
    assert labels[0] == "389,120 [R]" and labels[-1] == "890 [C]"


@pytest.mark.skipif(os.name == "nt", reason="needs bash")
def test_ci_script_is_bash_and_runs_everything():
    script = ROOT / ".ci" / "run"
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0
    assert script.read_text(encoding="utf-8").splitlines()[-1].startswith(
        "exec python3 course.py test --all"
    )


@pytest.mark.parametrize("job, runs", [
    ("whole", ["bash .ci/run"]),
    ("light", ["python course.py doctor", "python course.py test"]),
])
def test_workflow_runs_the_same(job, runs):
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    steps = yaml.safe_load(text)["jobs"][job]["steps"]
    assert [step["run"] for step in steps if "run" in step] == runs
