"""JupyterLab on a folder, away from the user's settings, and what a browser does in it.

The server takes a free port and keeps all of Jupyter's own files in a temporary folder. A page
opens one notebook, runs its cells and moves controls by keyboard, as a reader would.
"""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

FLAGS = (
    "--no-sandbox",  # needed as root, as in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
OWN_FOLDERS = (
    "JUPYTER_CONFIG_DIR",
    "JUPYTER_DATA_DIR",
    "JUPYTER_RUNTIME_DIR",
    "JUPYTERLAB_SETTINGS_DIR",
    "JUPYTERLAB_WORKSPACES_DIR",
    "IPYTHONDIR",
)
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},  # all cells are in the page
    "docmanager-extension/plugin": {"autosave": False},  # a test leaves notebooks as they are
}
ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 300  # generous, all of them: the machine may be very busy
CELLS_MS = 600_000
PATIENCE_MS = 120_000

# The page's own sign of being idle is true before a kernel exists, so the application is asked.
READY = """() => {
  const shown = window.jupyterapp?.shell.currentWidget;
  return Boolean(shown?.context?.isReady
    && shown.sessionContext?.session?.kernel?.status === "idle");
}"""


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab: where it answers, and the token that opens it."""

    url: str
    token: str

    def page_of(self, notebook: str) -> str:
        # `reset` forgets what the page had open before
        return f"{self.url}/lab/tree/{notebook}?token={self.token}&reset"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _environment(folder: Path) -> dict[str, str]:
    env = dict(os.environ, JUPYTER_PLATFORM_DIRS="1")
    for name in OWN_FOLDERS:
        (folder / name.lower()).mkdir()
        env[name] = str(folder / name.lower())
    env["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), env.get("PATH", "")))
    env["COURSE_PROGRESS"] = str(folder / "progress")  # what a test answers is nobody's progress
    env["PYTHONPATH"] = str(ROOT)  # the kernel runs the code of this tree, wherever it starts
    env.setdefault("OMP_NUM_THREADS", "1")
    for name, values in SETTINGS.items():
        extension, plugin = name.split("/")
        path = folder / "jupyterlab_settings_dir" / "@jupyterlab" / extension
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{plugin}.jupyterlab-settings").write_text(json.dumps(values))
    return env


def _wait(lab: Lab, server: subprocess.Popen, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{lab.url}/api/status?token={lab.token}", timeout=2)
            return
        except (urllib.error.URLError, OSError):
            if server.poll() is not None:
                break
            time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


@contextlib.contextmanager
def lab(root: Path):
    """Start JupyterLab on the folder `root`; yield a Lab; stop it and its kernels."""
    with tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        running = Lab(f"http://127.0.0.1:{free_port()}", secrets.token_hex(16))
        port = running.url.rsplit(":", 1)[1]
        command = [
            sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root",
            "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}",
            "--ServerApp.port_retries=0", f"--IdentityProvider.token={running.token}",
            f"--ServerApp.root_dir={root}", "--LabApp.news_url=", "--expose-app-in-browser",
        ]  # fmt: skip
        log = folder / "server.log"
        with log.open("w") as out:
            server = subprocess.Popen(
                command, env=_environment(folder), stdout=out, stderr=out, cwd=root
            )
        try:
            _wait(running, server, log)
            yield running
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


# ---------------------------------------------------------------- what a reader does


def open_notebook(page, running: Lab, notebook: str, dark: bool = False) -> None:
    """Open a notebook in one of the two themes and wait for its kernel."""
    page.set_default_timeout(PATIENCE_MS)
    page.goto(running.page_of(notebook), wait_until="domcontentloaded")
    page.wait_for_function(READY, polling=50, timeout=START_SECONDS * 1000)
    choose_theme(page, dark)  # the server remembers the last one, so it is always said


def choose_theme(page, dark: bool) -> None:
    theme = "JupyterLab Dark" if dark else "JupyterLab Light"
    page.evaluate(
        "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme
    )
    wanted = f'body[data-jp-theme-light="{"false" if dark else "true"}"]'
    page.wait_for_selector(wanted, state="attached")


def run_all(page) -> None:
    """Run all cells and wait until the last has run. Raises AssertionError if one failed."""
    page.set_default_timeout(CELLS_MS)
    ran = page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.set_default_timeout(PATIENCE_MS)
    assert ran is not False, "\n".join(page.locator(".jp-OutputArea").all_inner_texts())


def hide_sidebar(page) -> None:
    """Give the notebook the whole width, as one reads it."""
    page.evaluate(
        """() => { const shell = window.jupyterapp.shell;
                   if (!shell.leftCollapsed) shell.collapseLeft(); }"""
    )


def chart_of(widget) -> str:
    return widget.locator(".kvc-chart").inner_html()


def wait_for_change(page, widget, before: str) -> None:
    page.wait_for_function(
        "([chart, before]) => chart.innerHTML !== before",
        arg=[widget.locator(".kvc-chart").element_handle(), before],
        polling="raf",
    )


def move(page, control) -> None:
    """Move a native input by keyboard alone: away from where it is."""
    kind = control.evaluate("node => node.type || node.tagName")
    control.focus()
    if kind == "checkbox":
        page.keyboard.press("Space")
    elif kind == "range":
        value, most = control.evaluate("node => [Number(node.value), Number(node.max)]")
        page.keyboard.press("ArrowRight" if value < most else "ArrowLeft")
    elif kind == "select-one":
        last = control.evaluate("node => node.selectedIndex === node.options.length - 1")
        page.keyboard.press("ArrowUp" if last else "ArrowDown")
    else:
        page.keyboard.press("ArrowDown")


# From a key press to a changed picture on the screen: the clock starts when the key event
# reaches the page and stops two frames after the chart changed, when the first is painted.
WATCH = """(root) => {
  const chart = root.querySelector(".kvc-chart");
  let pressed = null;
  window.kvcTimes = [];
  root.addEventListener("keydown", (event) => { pressed = event.timeStamp; }, true);
  new MutationObserver(() => {
    if (pressed === null) return;
    const from = pressed;
    pressed = null;
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => window.kvcTimes.push(performance.now() - from);
      channel.port2.postMessage(null); // answered after this frame has been painted
    });
  }).observe(chart, { childList: true, subtree: true });
}"""


def watch_times(widget) -> None:
    """Begin to measure this widget (a Locator of its `.kvc`)."""
    widget.evaluate(WATCH)


def times(page) -> list[float]:
    """Milliseconds from each key press to the changed picture."""
    return page.evaluate("() => window.kvcTimes")
