"""environment.yml says what pyproject.toml says, in conda's words, line for line.

Every line is parsed strictly: what conda would understand in another way than it reads
(`=2.1` is a prefix, `2.1` alone a version and a build) is refused.
"""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
CONDA_NAMES = {"torch": "pytorch"}  # all others have the same name on conda-forge
NAME = r"(?P<name>[a-z0-9][a-z0-9._-]*)"
BOUND = r"(>=|<=|==|!=|<|>)\d+(\.\d+)*"
CONDA_LINE = re.compile(rf"{NAME}(?: (?P<bounds>{BOUND}(,{BOUND})*))?")
PYPROJECT_LINE = re.compile(rf"{NAME} ?(?P<bounds>{BOUND}(, ?{BOUND})*)(?:; (?P<marker>.+))?")


class StrictLoader(yaml.SafeLoader):
    """A YAML loader that refuses a key written twice."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise ValueError(f"written twice: {twice}")
        return super().construct_mapping(node, deep)


def conda_requirements(text: str) -> dict[str, frozenset[str]]:
    """Return name -> bounds of an environment.yml; raise ValueError where it is not as agreed."""
    content = yaml.load(text, StrictLoader)
    if list(content) != ["name", "channels", "dependencies"]:
        raise ValueError(f"keys {list(content)}")
    if content["name"] != "kv-cache-course":
        raise ValueError(f"name {content['name']!r}")
    if content["channels"] != ["conda-forge", "nodefaults"]:
        raise ValueError(f"channels {content['channels']}")
    *lines, pip = content["dependencies"]
    if pip != {"pip": ["-e .[test]"]} or "pip" not in lines:
        raise ValueError(f"pip must be asked for and come last, not {pip}")
    found = {}
    for line in lines:
        match = CONDA_LINE.fullmatch(line) if isinstance(line, str) else None
        if match is None:
            raise ValueError(f"not a name and bounds: {line!r}")
        if match["name"] in found:
            raise ValueError(f"listed twice: {match['name']}")
        found[match["name"]] = bounds(match["bounds"])
    del found["pip"]
    return found


def bounds(text: str | None) -> frozenset[str]:
    """Return `>=1,<2` as a set, so that neither order nor spaces matter."""
    return frozenset(text.replace(" ", "").split(",")) if text else frozenset()


def pyproject_requirements(text: str) -> dict[str, frozenset[str]]:
    """Return what environment.yml should list: name as on conda-forge -> bounds.

    A requirement with a marker is left to pip, for a conda file knows no markers.
    """
    project = tomllib.loads(text)["project"]
    found = {"python": bounds(project["requires-python"])}
    for line in project["dependencies"]:
        match = PYPROJECT_LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"not a name and bounds: {line!r}")
        if match["marker"] is None:
            found[CONDA_NAMES.get(match["name"], match["name"])] = bounds(match["bounds"])
    return found


ENVIRONMENT = (ROOT / "environment.yml").read_text(encoding="utf-8")
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_environment_mirrors_pyproject():
    expected = pyproject_requirements(PYPROJECT)
    assert len(expected) > 10 and "pytorch" in expected
    assert conda_requirements(ENVIRONMENT) == expected


def test_only_triton_is_left_to_pip():
    marked = [line for line in tomllib.loads(PYPROJECT)["project"]["dependencies"] if ";" in line]
    assert [line.split(">")[0] for line in marked] == ["triton"]


@pytest.mark.parametrize("old, new", [
    ("  - einops >=0.8,<1\n", ""),
    ("  - pip\n", "  - pip\n  - scipy >=1\n"),
    ("pytorch >=2.11,<3", "pytorch >=2.10,<3"),
    ("pytorch >=2.11,<3", "pytorch >=2.11"),
    ("pytorch >=2.11,<3", "torch >=2.11,<3"),
    ("python >=3.11", "python >=3.10"),
])
def test_a_difference_is_seen(old, new):
    assert ENVIRONMENT.count(old) == 1
    changed = conda_requirements(ENVIRONMENT.replace(old, new))
    assert changed != pyproject_requirements(PYPROJECT)


@pytest.mark.parametrize("old, new", [
    ("- nodefaults", "- defaults"),
    ("  - conda-forge\n", "  - pytorch\n  - conda-forge\n"),
    ("numpy >=2.0,<3", "numpy =2.0"),
    ("numpy >=2.0,<3", "numpy 2.0"),
    ("numpy >=2.0,<3", "numpy>=2.0,<3"),
    ("numpy >=2.0,<3", "numpy >=2.0,<"),
    ("numpy >=2.0,<3", "conda-forge::numpy >=2.0,<3"),
    ("numpy >=2.0,<3", "pytorch >=2.11,<3"),
    ("  - pip\n", ""),
    ("-e .[test]", "-e ."),
    ("      - -e .[test]\n", "      - -e .[test]\n      - scipy\n"),
    ("      - -e .[test]\n", "      - -e .[test]\n  - scipy\n"),
    ("name: kv-cache-course", "name: kv-cache-course\nname: other"),
    ("name: kv-cache-course", "name: kv-cache-course\nprefix: /opt"),
])
def test_a_line_that_is_not_as_agreed_is_refused(old, new):
    assert ENVIRONMENT.count(old) == 1
    with pytest.raises((ValueError, yaml.YAMLError)):
        conda_requirements(ENVIRONMENT.replace(old, new))


def test_a_pyproject_line_without_bounds_is_refused():
    with pytest.raises(ValueError, match="einops"):
        pyproject_requirements(PYPROJECT.replace('"einops>=0.8,<1"', '"einops"'))
