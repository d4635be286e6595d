#!/usr/bin/env python3
"""The two commands of the course, and a few more beside them.

    python3 course.py lab [--no-browser] [--port N]   read and run the course in JupyterLab
    python3 course.py test [--all] [pytest args]      run every test and every notebook
    python3 course.py grade NOTEBOOK ...              grade exercise notebooks
    python3 course.py status                          what you have passed so far
    python3 course.py reset STEM                      put an exercise notebook back as shipped
    python3 course.py doctor                          what this machine can run, in plain words
    python3 course.py notebooks                       rebuild the notebooks from sources/
    python3 course.py site [--out DIR]                write the course as web pages

Every command first builds its own Python environment in .venv/, beside this file, if
it is not there yet. Nothing is written outside this folder but pip's usual cache.
COURSE_TORCH names another version of torch than the usual one ("2.12.0", or any
requirement pip takes), COURSE_TORCH_INDEX another index to take it from. Both are
remembered, so one run with them set is enough.
Exit code: 0 done, 1 a check failed, 2 usage or environment (one sentence on stderr).
"""

# Only the standard library, and only syntax that Python 3.6 can parse: this file runs
# before anything is installed, and must be able to tell an old Python that it is old.
import sys

if sys.version_info < (3, 11):  # noqa: UP036
    sys.stderr.write(
        "course.py needs Python 3.11 or newer, and {} is Python {}.{}.{}: run it with a "
        "newer one, for example python3.12 course.py lab.\n".format(
            sys.executable or "this", *sys.version_info[:3]
        )
    )
    sys.exit(2)

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
STAMP = VENV / "course-stamp.json"  # written last: its presence means a whole environment
UNFINISHED = VENV / "course-unfinished.json"  # written first, removed last
LOG = VENV / "course-install.log"
TORCH = "torch==2.13.0"
ROOM = 3_500_000_000  # bytes a first build needs at least: 2.7 GB stay, the rest is unpacking
PACKAGES = "torch numpy jupyterlab ipykernel ipywidgets nbclient pytest xdist nbval rich"
PROBE = (
    "import sys, importlib.util as u; "
    f"sys.exit(any(u.find_spec(name) is None for name in '{PACKAGES}'.split()))"
)
COMMANDS = {
    # command: the module that does it, inside the environment, with its first arguments
    "lab": ["tools.lab"],
    "test": ["tools.suite"],
    "grade": ["grading"],
    "status": ["grading", "status"],
    "reset": ["tools.reset"],
    "doctor": ["tools.doctor"],
    "notebooks": ["tools", "build"],
    "site": ["tools", "site"],
}


class Trouble(Exception):
    """What is wrong with the call or the machine, as one sentence for the reader."""


def venv_python():
    """Return the path of the environment's own Python; it need not exist."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def wanted_stamp():
    """Return what the environment should have been built from, as a dict.

    The torch requirement and its index come from COURSE_TORCH and COURSE_TORCH_INDEX;
    where these are not set, from the last build; else they are the usual ones.
    """
    before = read_json(UNFINISHED) or read_json(STAMP) or {}
    torch = os.environ.get("COURSE_TORCH", before.get("torch", TORCH)).strip() or TORCH
    if torch[0].isdigit():
        torch = "torch==" + torch
    index = os.environ.get("COURSE_TORCH_INDEX", before.get("torch_index", "")).strip()
    return {
        "pyproject": hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest(),
        "torch": torch,
        "torch_index": index,
        "python": "{}.{}".format(*sys.version_info[:2]),
        "root": str(ROOT),  # a moved folder breaks the paths inside an environment
    }


def read_json(path):
    """Return the dict in a JSON file, or None where there is none that can be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def starts(*arguments):
    """Tell whether the environment's Python runs with these arguments and ends well."""
    command = [str(venv_python()), *arguments]
    try:
        return subprocess.run(command, capture_output=True, timeout=120).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def is_whole(wanted):
    """Tell whether .venv/ was built from what is wanted, to the end, and still stands."""
    return read_json(STAMP) == wanted and not UNFINISHED.exists() and starts("-c", PROBE)


def ensure_environment():
    """Build .venv/, repair it or leave it alone; raise Trouble where that cannot be done.

    A whole environment carries a stamp that matches pyproject.toml. One that was made
    for other requirements is brought up to date in place; one that was interrupted, does
    not start or belongs to another Python is built again from nothing.
    """
    try:
        wanted = wanted_stamp()
        with one_at_a_time():
            if not is_whole(wanted):
                build(wanted)
    except OSError as error:
        raise Trouble(sentence_for(error)) from error


def build(wanted):
    """Make .venv/ what `wanted` says, step by step, and write the stamp at the end."""
    if not can_be_updated(wanted):
        remove_environment()
        create_environment(wanted)
    UNFINISHED.write_text(json.dumps(wanted), encoding="utf-8")
    STAMP.unlink(missing_ok=True)
    with open(LOG, "w", encoding="utf-8") as log:
        index = ["--index-url", wanted["torch_index"]] if wanted["torch_index"] else []
        # torch first: an open range could bring a build of several gigabytes.
        pip_install(log, [*index, wanted["torch"]])
        pip_install(log, ["-e", str(ROOT) + "[test]"])
    if not starts("-c", PROBE):
        raise Trouble(
            f"pip ended well, but {VENV} lacks one of {', '.join(PACKAGES.split())}: "
            f"read {LOG}, remove {VENV} and run this again."
        )
    temporary = STAMP.with_suffix(".tmp")
    temporary.write_text(json.dumps(wanted, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, STAMP)
    UNFINISHED.unlink()
    note("The environment in .venv/ is ready.")


def can_be_updated(wanted):
    """Tell whether .venv/ is whole enough to install into, whatever it holds now."""
    if UNFINISHED.exists() or not starts("-m", "pip", "--version"):
        return False
    stamp = read_json(STAMP)
    if stamp is None:  # made by other hands, or by a whole build whose stamp was removed
        return starts("-c", f"import sys; sys.exit(sys.version_info[:2] != "
                            f"{tuple(sys.version_info[:2])})")
    return stamp.get("python") == wanted["python"] and stamp.get("root") == wanted["root"]


def remove_environment():
    """Remove what stands at .venv/, be it a folder, a link or a file."""
    if VENV.is_dir() and not VENV.is_symlink():
        shutil.rmtree(VENV)
    elif VENV.is_symlink() or VENV.exists():
        VENV.unlink()


def create_environment(wanted):
    """Make an empty environment with pip in it."""
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        raise Trouble(
            f"{sys.executable} comes without pip (its module {error.name} is missing), so "
            "it cannot make an environment: on Debian or Ubuntu run `apt install "
            "python3-venv`, elsewhere use a Python from python.org."
        ) from error
    free = shutil.disk_usage(ROOT).free
    if free < ROOM:
        raise OSError(errno.ENOSPC, "")
    note("Making the environment in .venv/ (the first time only: a few minutes, 3 to 6 GB).")
    VENV.mkdir()
    UNFINISHED.write_text(json.dumps(wanted), encoding="utf-8")
    python = getattr(sys, "_base_executable", None) or sys.executable
    command = [python, "-m", "venv", str(VENV)]
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if made.returncode != 0:
        said = made.stdout.strip().splitlines() or [f"exit code {made.returncode}"]
        raise Trouble(trouble_in("\n".join(said), f"`{python} -m venv` failed: {said[-1]}"))


def pip_install(log, arguments):
    """Run pip in the environment; its words go to the log and, on a terminal, to a line."""
    note(f"Installing {arguments[-1]}")
    command = [str(venv_python()), "-m", "pip", "install", "--no-input", *arguments]
    patience = {"PIP_RETRIES": "2", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    pip = subprocess.Popen(command, cwd=ROOT, env={**patience, **os.environ}, text=True,
                           errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    words = []
    for line in pip.stdout:
        log.write(line)
        words.append(line)
        note(line.rstrip(), passing=True)
    note("", passing=True)
    if pip.wait() != 0:
        said = [line.strip() for line in words if line.startswith("ERROR")] or words[-1:] or ["-"]
        raise Trouble(trouble_in("".join(words), f"pip could not install {arguments[-1]} "
                                 f"({said[-1].strip()}); everything it said is in {LOG}."))


def trouble_in(words, otherwise):
    """Return a sentence on what went wrong, from what venv or pip said."""
    if "No space left" in words or "Errno 28" in words:
        return sentence_for(OSError(errno.ENOSPC, ""))
    if "Permission denied" in words or "Errno 13" in words:
        return sentence_for(PermissionError(errno.EACCES, "", str(VENV)))
    if "ensurepip" in words:
        return (f"{sys.executable} cannot put pip into an environment: on Debian or Ubuntu "
                "run `apt install python3-venv` and try again.")
    lost = ["NewConnectionError", "name resolution", "ConnectTimeout", "ReadTimeout",
            "connection broken", "Network is unreachable", "ProxyError", "SSLError"]
    if any(word in words for word in lost):
        UNFINISHED.unlink(missing_ok=True)  # pip installs after it has fetched: nothing changed
        return ("pip could not reach the package index: check the network, or set "
                "PIP_INDEX_URL (and COURSE_TORCH_INDEX for torch) to an index you can reach.")
    return otherwise


def sentence_for(error):
    """Return a sentence on what an OSError means for the reader."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        free = shutil.disk_usage(ROOT).free / 1e9
        return (f"There is too little room on the disk of {ROOT}: {free:.1f} GB is free, and the "
                f"environment needs {ROOM / 1e9:.1f} GB, or 7 GB where torch comes with CUDA "
                "(COURSE_TORCH_INDEX can name an index without it).")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (f"{error.filename or ROOT} cannot be written: the course keeps its environment "
                f"in {VENV}, so copy it to a folder that is yours.")
    return f"The environment in {VENV} could not be built: {error}."


@contextlib.contextmanager
def one_at_a_time():
    """Let one run build while others wait; the lock goes when the process does."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        try:
            import fcntl
        except ImportError:  # Windows has none: two first runs at once are then unwise
            yield
            return
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def note(text, passing=False):
    """Say how the build goes, on a terminal only: elsewhere stderr is kept for trouble."""
    if not sys.stderr.isatty():
        return
    width = shutil.get_terminal_size().columns - 1
    line = text[:width].ljust(width)
    sys.stderr.write("\r" + line + ("" if passing else "\n"))
    sys.stderr.flush()


def hand_over(arguments):
    """Run a module in the environment in this process's place, and end as it ends."""
    command = [str(venv_python()), "-m", *arguments]
    binaries = str(venv_python().parent)
    os.environ["PATH"] = binaries + os.pathsep + os.environ.get("PATH", os.defpath)
    os.environ["VIRTUAL_ENV"] = str(VENV)
    os.environ.pop("PYTHONHOME", None)
    # The folder itself, so that a module is found wherever the command was typed.
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    sys.stdout.flush()
    if os.name != "nt":
        os.execv(command[0], command)
    # Windows has no exec: Ctrl-C reaches the child by itself, so wait for its answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return subprocess.run(command).returncode


def main(arguments):
    """Run one command and return its exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        text = __doc__ if arguments else ""
        sys.stdout.write(text)
        if not text:
            raise Trouble(f"Say what to do: python3 course.py {' | '.join(COMMANDS)}.")
        return 0
    command, rest = arguments[0], arguments[1:]
    if command not in COMMANDS:
        raise Trouble(f"There is no command {command!r}; there are {', '.join(COMMANDS)}.")
    ensure_environment()
    return hand_over([*COMMANDS[command], *rest])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Trouble as trouble:
        sys.stderr.write(f"{trouble}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("Stopped; the next run repairs what was left unfinished.\n")
        sys.exit(2)
