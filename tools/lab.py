"""`course.py lab`: JupyterLab on the course, quiet, and leaving nothing outside .venv/."""

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST = "notebooks/00__start_here.ipynb"
QUIET = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
}
# What Jupyter would otherwise keep in the home folder, each in a folder of its own.
KEPT = {
    "JUPYTER_CONFIG_DIR": "config",
    "JUPYTER_DATA_DIR": "data",
    "JUPYTER_RUNTIME_DIR": "runtime",
    "JUPYTERLAB_SETTINGS_DIR": "settings",
    "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    "IPYTHONDIR": "ipython",
}


def environment(prefix: Path) -> dict[str, str]:
    """Return the environment variables that keep Jupyter's files below `prefix`."""
    home = prefix / "share" / "course-jupyter"
    folders = {name: str(home / folder) for name, folder in KEPT.items()}
    return {**os.environ, **folders, "JUPYTER_PREFER_ENV_PATH": "1"}


def write_quiet_settings(prefix: Path) -> None:
    """Turn JupyterLab's news and update questions off for this environment."""
    path = prefix / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    text = json.dumps(QUIET, indent=2) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def port_is_free(port: int) -> bool:
    """Tell whether a server could listen on this port of the machine itself."""
    with socket.socket() as probe:
        if os.name != "nt":  # there it would let two servers share the port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def command(browser: bool, port: int | None) -> list[str]:
    """Return the command that starts JupyterLab with the first chapter open."""
    line = [
        sys.executable, "-m", "jupyterlab",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.root_dir={ROOT}",
        f"--LabApp.default_url=/lab/tree/{FIRST}",
        "--ServerApp.answer_yes=True",  # Ctrl-C ends it without a question
        "--LabApp.news_url=",
        "--LanguageServerManager.autodetect=False",  # it would call npm, which writes to ~/.npm
    ]  # fmt: skip
    if not browser:
        line.append("--no-browser")
    if port is not None:
        line += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        line.append("--allow-root")  # in a container there is often no other user
    return line


class Parser(argparse.ArgumentParser):
    """A parser whose complaint is one sentence."""

    def error(self, message):
        sys.exit(complain(f"course.py lab [--no-browser] [--port N]: {message}."))


def complain(sentence: str) -> int:
    """Print one sentence to stderr and return the exit code that goes with it."""
    print(sentence, file=sys.stderr)
    return 2


def main(arguments: list[str]) -> int:
    """Start JupyterLab; return an exit code only where that cannot be done."""
    parser = Parser(prog="course.py lab", description="Open the course in JupyterLab.")
    parser.add_argument("--no-browser", action="store_true", help="print the address only")
    parser.add_argument("--port", type=int, metavar="N", help="the port to listen on")
    options = parser.parse_args(arguments)
    if not (ROOT / FIRST).exists():
        return complain(f"{FIRST} is missing: `python3 course.py notebooks` builds it.")
    if options.port is not None and not 1 <= options.port <= 65535:
        return complain(f"--port must be between 1 and 65535, not {options.port}.")
    if options.port is not None and not port_is_free(options.port):
        return complain(f"Port {options.port} is taken or not allowed: choose another --port.")
    prefix = Path(sys.prefix)
    try:
        write_quiet_settings(prefix)
    except OSError as error:
        return complain(f"The settings of JupyterLab cannot be written: {error}.")
    line = command(not options.no_browser, options.port)
    os.chdir(ROOT)
    if os.name != "nt":
        os.execve(line[0], line, environment(prefix))
    try:
        return subprocess.run(line, env=environment(prefix)).returncode
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
