"""The files around the course: licenses, citation, hooks, places to run it, plans to follow it."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
import yaml

import course
from tools.site.chapters import STEMS, _heading

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TIMES = re.compile(r"^\| (\d\d) .+? \| (\d+) \| (\d+) \| (\d+) \|$", re.M)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def links(text: str) -> Iterator[str]:
    """Files that a markdown text links to, code aside."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in target and not target.startswith("#"):
            yield target.split("#")[0]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in links(document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target


def test_a_broken_link_would_be_seen():
    assert list(links("[a](b.md#c) ![d](e.png) `[x]` [f](https://g.org)")) == ["b.md", "e.png"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_named_commands_exist(document):
    text = document.read_text(encoding="utf-8")
    assert set(re.findall(r"course\.py ([a-z]+)", text)) <= set(course.COMMANDS)
    for name in set(re.findall(r"-m tools ([a-z]+)", text)):
        assert f'add_parser("{name}"' in read("tools/__main__.py"), name


def test_both_readmes_say_the_same_commands_and_lead_to_each_other():
    english, chinese = read("README.md"), read("README.zh-CN.md")

    def commands(text: str) -> list[str]:
        blocks = re.findall(r"```\n(.*?)```", text, re.S)
        lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
        return [line for line in lines if line]

    assert commands(english) == commands(chinese)
    assert "](README.zh-CN.md)" in english and "](README.md)" in chinese
    numbers = re.compile(r"\d{1,3}(?:,\d{3})+|\d+\.\d+ GB")
    assert set(numbers.findall(english)) == set(numbers.findall(chinese))


def test_licenses_are_the_two_and_named_where_people_look():
    assert read("LICENSE").startswith("MIT License") and "WITHOUT WARRANTY" in read("LICENSE")
    assert "creativecommons.org/licenses/by/4.0" in read("LICENSE-text")
    for name in ("README.md", "README.zh-CN.md", "CONTRIBUTING.md"):
        assert "](LICENSE)" in read(name) and "](LICENSE-text)" in read(name)


def test_the_citation_is_whole():
    cited = yaml.safe_load(read("CITATION.cff"))
    assert {"cff-version", "message", "title", "authors", "version", "license"} <= set(cited)
    assert cited["title"] in read("README.md").splitlines()[0]
    assert cited["version"] == PROJECT["version"] and cited["license"] == "MIT"
    assert f"## {PROJECT['version']}" in read("CHANGELOG.md")


def test_hooks_are_local_and_run_what_is_there():
    (repo,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert repo["repo"] == "local"
    for hook in repo["hooks"]:
        assert hook["language"] == "system"
        tool, *rest = hook["entry"].split()
        assert tool in (".venv/bin/ruff", ".venv/bin/python", ".venv/bin/mypy")
        for word in rest:
            assert not word.startswith("tests/") or (ROOT / word).exists()


# The fields of a devcontainer.json that are used here, as containers.dev specifies them.
BYTES, IMAGE = re.compile(r"\d+[tgmk]b"), re.compile(r"[a-z0-9.]+(/[a-z0-9._-]+)+:[\w.-]+")
EXTENSION = re.compile(r"[\w-]+\.[\w-]+")
CONTAINER = {
    "name": lambda value: isinstance(value, str),
    "image": lambda value: IMAGE.fullmatch(value),
    "postCreateCommand": lambda value: isinstance(value, str),
    "forwardPorts": lambda value: all(type(n) is int and 0 < n < 65_536 for n in value),
    "portsAttributes": lambda value: all(
        re.fullmatch(r"\d+", port) and set(said) <= {"label", "onAutoForward", "protocol"}
        for port, said in value.items()
    ),
    "hostRequirements": lambda value: (
        set(value) == {"cpus", "memory", "storage"}
        and type(value["cpus"]) is int
        and all(BYTES.fullmatch(value[name]) for name in ("memory", "storage"))
    ),
    "customizations": lambda value: (
        set(value) == {"vscode"}
        and set(value["vscode"]) <= {"extensions", "settings"}
        and all(EXTENSION.fullmatch(name) for name in value["vscode"]["extensions"])
        and all("." in name for name in value["vscode"]["settings"])
    ),
}


def wrong_in(container: dict) -> list[str]:
    """Fields of a devcontainer.json that are unknown here, or hold what they must not."""
    return [k for k, v in container.items() if k not in CONTAINER or not CONTAINER[k](v)]


def test_the_dev_container_is_one_and_runs_a_command_of_ours():
    made = json.loads(read(".devcontainer/devcontainer.json"))
    assert wrong_in(made) == [] and "image" in made
    assert made["postCreateCommand"] == "python3 course.py doctor"
    python = re.search(r"python:(\d+)\.(\d+)", made["image"])
    assert tuple(map(int, python.groups())) >= (3, 11)  # what pyproject.toml requires
    settings = made["customizations"]["vscode"]["settings"]
    assert settings["python.defaultInterpreterPath"].endswith("/.venv/bin/python")
    assert set(made["portsAttributes"]) == set(map(str, made["forwardPorts"]))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image", "python"),
        ("forwardPort", [8888]),
        ("forwardPorts", ["8888"]),
        ("hostRequirements", {"cpus": "2", "memory": "8gb", "storage": "16gb"}),
        ("hostRequirements", {"cpus": 2, "memory": "8 GB", "storage": "16gb"}),
        ("customizations", {"vscode": {"extensions": ["jupyter"], "settings": {}}}),
        ("customizations", {"extensions": []}),
    ],
)
def test_a_field_that_containers_do_not_know_is_seen(field, value):
    made = json.loads(read(".devcontainer/devcontainer.json"))
    assert wrong_in({**made, field: value}) == [field]


def test_it_is_said_what_was_never_tried():
    assert "really tried: none" in read("docs/elsewhere.md")
    for name in ("Binder", "Colab", "ontainer", "conda"):
        assert name in read("README.md") and name in read("docs/elsewhere.md")


def test_the_map_names_all_that_lies_at_the_root():
    try:
        told = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git here: what belongs to the repository cannot be told")
    names = {name.split("/")[0] for name in told.stdout.split("\0") if name}
    named = set(re.findall(r"`([^`]+?)/?`", read("docs/map.md")))
    assert names - named == set()


def planned() -> dict[str, tuple[int, ...]]:
    """chapter -> minutes of its lesson, its exercises, its optional ones, from the syllabi."""
    return {row[0]: tuple(map(int, row[1:])) for row in TIMES.findall(read("docs/syllabi.md"))}


def test_the_syllabi_add_up():
    assert list(planned()) == [stem[:2] for stem in STEMS]
    sums = [sum(column) for column in zip(*planned().values())]
    assert "| **all** | " + " | ".join(f"**{total}**" for total in sums) in read("docs/syllabi.md")


@pytest.mark.parametrize("stem", [s for s in STEMS if (ROOT / f"notebooks/{s}.ipynb").exists()])
def test_a_lesson_takes_what_the_syllabi_say(stem):
    _, time = _heading(stem, nbformat.read(ROOT / f"notebooks/{stem}.ipynb", 4).cells[0].source)
    assert f"{planned()[stem[:2]][0]} minutes" in time


@pytest.mark.parametrize("stem", [s for s in STEMS if (ROOT / f"exercises/{s}.ipynb").exists()])
def test_exercises_take_what_the_syllabi_say(stem):
    cells = nbformat.read(ROOT / f"exercises/{stem}.ipynb", 4).cells
    sums = {False: 0, True: 0}
    for cell in cells:
        if cell.cell_type == "markdown":
            for head, minutes in re.findall(
                r"^## \d\d\.\d+ (.+)\n\n.*?(\d+) minutes", cell.source, re.M
            ):
                sums["(optional" in head] += int(minutes)
    assert (sums[False], sums[True]) == planned()[stem[:2]][1:]
