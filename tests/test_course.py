"""course.py in broken situations: one sentence, exit code 2; and in whole ones: no work twice.

Nothing is installed here. A stand-in for the module `venv`, found first through PYTHONPATH,
makes an environment whose Python is a shell script: it writes down how it was called.
"""

import ast
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COURSE = Path(__file__).resolve().parent.parent / "course.py"
pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-in Python is a shell script")

FAKE_VENV = """\
import os, pathlib, shutil, sys, time
if os.environ.get("VENV_SAYS"):
    print(os.environ["VENV_SAYS"])
    sys.exit(1)
binaries = pathlib.Path(sys.argv[1]) / "bin"
binaries.mkdir(parents=True)
shutil.copy(os.environ["FAKE_PYTHON"], binaries / "python")
with open(os.environ["CALLS"], "a") as calls:
    calls.write("venv\\n")
time.sleep(float(os.environ.get("VENV_WAITS", 0)))
"""
FAKE_PYTHON = """\
#!/bin/sh
here="$(dirname "$0")"
case "$*" in
  "-m pip install"*)
    echo "pip ${*#-m pip install --no-input }" >> "$CALLS"
    [ -n "$PIP_WAITS" ] && sleep "$PIP_WAITS"
    [ -n "$PIP_SAYS" ] && { echo "$PIP_SAYS"; exit 1; }
    touch "$here/installed" ;;
  "-m pip --version"|"-c import sys; sys.exit(sys.version"*) exit 0 ;;
  "-c import sys, importlib"*) [ -e "$here/installed" ] ;;
  *) echo "$@"; exit "${COMMAND_ENDS:-0}" ;;
esac
"""


class Clone:
    """A copy of course.py in a folder of its own, with the stand-ins around it."""

    def __init__(self, folder: Path):
        self.root = folder / "a course"  # a space in the path must not matter
        self.root.mkdir()
        shutil.copy(COURSE, self.root)
        (self.root / "pyproject.toml").write_text("[project]\nname = 'one'\n")
        self.modules = folder / "modules"
        (self.modules / "venv").mkdir(parents=True)
        (self.modules / "venv" / "__init__.py").touch()
        (self.modules / "venv" / "__main__.py").write_text(FAKE_VENV)
        self.fake = folder / "python"
        self.fake.write_text(FAKE_PYTHON)
        self.fake.chmod(0o755)
        self.log = folder / "calls"
        self.venv = self.root / ".venv"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, str(self.root / "course.py"), *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        ours = {"PYTHONPATH": self.modules, "FAKE_PYTHON": self.fake, "CALLS": self.log}
        return {**kept, **{name: str(path) for name, path in ours.items()}, **more}

    def run(self, *arguments: str, before=None, **more: str) -> subprocess.CompletedProcess:
        return subprocess.run(self.command(*arguments), env=self.environment(**more), text=True,
                              capture_output=True, timeout=120, preexec_fn=before)

    def calls(self) -> list[str]:
        """Return what was done to the environment since the last time this was asked."""
        done = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return done


@pytest.fixture
def clone(tmp_path):
    return Clone(tmp_path)


@pytest.fixture
def built(clone):
    """A clone whose environment is whole."""
    assert clone.run("doctor").returncode == 0
    clone.calls()
    return clone


def refused(result: subprocess.CompletedProcess) -> str:
    """Assert that a run ended as trouble must end, and return its one sentence."""
    assert result.returncode == 2, (result.stdout, result.stderr)
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1 and result.stderr.endswith(".\n"), result.stderr
    return result.stderr


# --- a whole run ---


def test_first_run_installs_torch_first_and_stamps_last(clone):
    result = clone.run("doctor")
    assert (result.returncode, result.stdout) == (0, "-m tools.doctor\n")
    assert clone.calls() == ["venv", "pip torch==2.13.0", f"pip -e {clone.root}[test]"]
    assert json.loads((clone.venv / "course-stamp.json").read_text())["torch"] == "torch==2.13.0"
    assert not (clone.venv / "course-unfinished.json").exists()


def test_second_run_installs_nothing(built):
    assert built.run("doctor").returncode == 0
    assert built.calls() == []


@pytest.mark.parametrize("code", [0, 1, 2, 37])
def test_exit_code_is_the_commands(built, code):
    result = built.run("grade", "x.ipynb", "--json", "f", COMMAND_ENDS=str(code))
    assert (result.returncode, result.stdout) == (code, "-m grading x.ipynb --json f\n")


def test_changed_pyproject_is_installed_into_the_same_environment(built):
    (built.root / "pyproject.toml").write_text("[project]\nname = 'two'\n")
    assert built.run("status").returncode == 0
    assert built.calls() == ["pip torch==2.13.0", f"pip -e {built.root}[test]"]
    built.run("status")
    assert built.calls() == []


def test_environment_made_by_other_hands_is_kept(clone):
    (clone.venv / "bin").mkdir(parents=True)
    shutil.copy(clone.fake, clone.venv / "bin" / "python")
    (clone.venv / "mine").touch()
    assert clone.run("doctor").returncode == 0
    assert (clone.venv / "mine").exists() and "venv" not in clone.calls()


def test_another_torch_and_index_are_remembered(clone):
    clone.run("doctor", COURSE_TORCH="2.12.0", COURSE_TORCH_INDEX="http://index.invalid/cpu")
    assert clone.calls()[1] == "pip --index-url http://index.invalid/cpu torch==2.12.0"
    clone.run("doctor")
    assert clone.calls() == []
    clone.run("doctor", COURSE_TORCH="torch>=2.11,<3", COURSE_TORCH_INDEX="")
    assert clone.calls()[0] == "pip torch>=2.11,<3"


# --- a broken environment is built again ---


def without_python(venv):
    (venv / "bin" / "python").unlink()


def with_dangling_python(venv):
    without_python(venv)
    (venv / "bin" / "python").symlink_to("/nowhere/python3.11")


def with_failing_python(venv):
    (venv / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")


def with_unfinished_build(venv):
    shutil.copy(venv / "course-stamp.json", venv / "course-unfinished.json")


def of_another_python(venv):
    stamp = venv / "course-stamp.json"
    stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "python": "3.10"}))


def replaced_by_a_file(venv):
    shutil.rmtree(venv)
    venv.write_text("no folder")


@pytest.mark.parametrize("damage", [without_python, with_dangling_python, with_failing_python,
                                    with_unfinished_build, of_another_python, replaced_by_a_file])
def test_broken_environment_is_built_again(built, damage):
    damage(built.venv)
    assert built.run("doctor").returncode == 0
    assert built.calls()[0] == "venv"
    assert built.run("doctor").returncode == 0
    assert built.calls() == []


def test_moved_folder_is_built_again(built):
    built.root = built.root.rename(built.root.with_name("moved"))
    assert built.run("doctor").returncode == 0
    assert built.calls()[0] == "venv"


def test_lost_packages_are_installed_again(built):
    (built.venv / "bin" / "installed").unlink()
    assert built.run("doctor").returncode == 0
    assert built.calls() == ["pip torch==2.13.0", f"pip -e {built.root}[test]"]


def heed_ctrl_c():
    """Undo what a shell does to jobs in the background: they ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("stage, waits", [("venv", "VENV_WAITS"), ("pip torch", "PIP_WAITS")])
def test_interrupted_build_is_repaired(clone, stage, waits, how):
    first = subprocess.Popen(clone.command("doctor"), env=clone.environment(**{waits: "3"}),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             preexec_fn=heed_ctrl_c)
    deadline = time.monotonic() + 60
    while not (clone.log.exists() and stage in clone.log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.send_signal(how)
    out, err = first.communicate(timeout=60)
    assert out == "" and first.returncode == (2 if how == signal.SIGINT else -how)
    assert ("Stopped" in err) == (how == signal.SIGINT)
    clone.calls()
    assert clone.run("doctor").returncode == 0
    assert clone.calls() == ["venv", "pip torch==2.13.0", f"pip -e {clone.root}[test]"]


def test_two_first_runs_at_once_build_once(clone):
    runs = [subprocess.Popen(clone.command("doctor"), env=clone.environment(PIP_WAITS="1"),
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for _ in range(2)]
    assert [run.wait(timeout=120) for run in runs] == [0, 0]
    assert clone.calls().count("venv") == 1


# --- one sentence, and exit code 2 ---


def test_old_python_is_told_so(clone):
    program = ("import sys, runpy; sys.version_info = (3, 8, 10, 'final', 0); "
               f"runpy.run_path({str(clone.root / 'course.py')!r}, run_name='__main__')")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "3.11 or newer" in refused(result) and "3.8.10" in result.stderr
    assert not clone.venv.exists()


def test_old_python_can_parse_it():
    source = COURSE.read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 6))
    with pytest.raises(SyntaxError):
        ast.parse(source + "\nif (x := 1): pass\n", feature_version=(3, 6))


def test_python_without_pip(clone):
    (clone.modules / "ensurepip.py").write_text(
        "raise ModuleNotFoundError('no', name='ensurepip')\n"
    )
    assert "apt install python3-venv" in refused(clone.run("doctor"))
    assert not clone.venv.exists()


def test_python_whose_venv_fails(clone):
    said = "The virtual environment was not created because ensurepip is not available."
    assert "python3-venv" in refused(clone.run("doctor", VENV_SAYS=said))
    assert "out of luck" in refused(clone.run("doctor", VENV_SAYS="out of luck."))
    assert clone.run("doctor").returncode == 0


def test_too_little_disk(clone):
    (clone.modules / "sitecustomize.py").write_text(
        "import shutil\nshutil.disk_usage = lambda path: shutil._ntuple_diskusage(9, 8, 10**9)\n"
    )
    assert "1.0 GB is free" in refused(clone.run("doctor"))
    assert not clone.venv.exists()


def without_root_powers():
    """Give up root's right to write where the file modes forbid it (Linux)."""
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


def test_read_only_folder(clone):
    clone.root.chmod(0o555)
    before = without_root_powers if os.geteuid() == 0 else None
    try:
        sentence = refused(clone.run("doctor", before=before))
    finally:
        clone.root.chmod(0o755)
    assert "cannot be written" in sentence and str(clone.venv) in sentence


@pytest.mark.parametrize("said, words", [
    ("ERROR: Could not install: [Errno 28] No space left on device", "too little room"),
    ("WARNING: Retrying: Temporary failure in name resolution\n"
     "ERROR: No matching distribution found for torch==2.13.0", "check the network"),
    ("ERROR: [Errno 13] Permission denied: '/x'", "cannot be written"),
    ("Collecting torch\nERROR: No matching distribution found for torch==9", "found for torch==9"),
])
def test_pip_fails(clone, said, words):
    assert words in refused(clone.run("doctor", PIP_SAYS=said))
    assert not (clone.venv / "course-stamp.json").exists()
    assert clone.run("doctor").returncode == 0


def test_failed_update_without_network_leaves_the_environment(built):
    (built.root / "pyproject.toml").write_text("[project]\nname = 'two'\n")
    refused(built.run("doctor", PIP_SAYS="Network is unreachable"))
    built.calls()
    assert built.run("doctor").returncode == 0
    assert "venv" not in built.calls()


def test_unknown_command_names_the_known_ones(clone):
    sentence = refused(clone.run("lba"))
    assert "'lba'" in sentence and "lab, test, grade" in sentence
    assert not clone.venv.exists()


def test_no_command_and_help(clone):
    assert "lab | test" in refused(clone.run())
    result = clone.run("--help")
    assert result.returncode == 0 and "course.py lab [--no-browser]" in result.stdout


def test_site_is_handed_over_with_its_folder(built):
    assert built.run("site").stdout == "-m tools site\n"
    assert built.run("site", "--out", "pages").stdout == "-m tools site --out pages\n"
