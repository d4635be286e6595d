"""The commands inside the environment: `lab`, `doctor` and `reset`."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools import build, chromium, doctor, lab, reset

ROOT = Path(__file__).resolve().parent.parent


# --- lab ---


def test_lab_opens_the_first_chapter_and_keeps_to_its_folder(tmp_path):
    line = lab.command(browser=True, port=None)
    assert "--LabApp.default_url=/lab/tree/notebooks/00__start_here.ipynb" in line
    assert "--no-browser" not in line and not any("port" in word for word in line)
    line = lab.command(browser=False, port=9876)
    assert "--no-browser" in line and "--ServerApp.port=9876" in line
    kept = lab.environment(tmp_path)
    assert all(Path(kept[name]).is_relative_to(tmp_path) for name in lab.KEPT)


@pytest.mark.parametrize("arguments, word", [
    (["--port", "x"], "invalid int"), (["--prot", "1"], "--prot"), (["--port", "70000"], "65535"),
    (["--port", "0"], "between"), (["some.ipynb"], "some.ipynb"),
])
def test_lab_refuses_in_one_sentence(arguments, word, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "FIRST", "course.py")  # the notebook may not be built yet
    monkeypatch.setattr(os, "execve", None)
    with pytest.raises(SystemExit) as stop:
        sys.exit(lab.main(arguments))
    out, err = capsys.readouterr()
    assert stop.value.code == 2 and out == "" and word in err and err.count("\n") == 1


def test_lab_refuses_a_port_in_use(capsys, monkeypatch):
    monkeypatch.setattr(lab, "FIRST", "course.py")
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert lab.main(["--port", str(port)]) == 2
    assert str(port) in capsys.readouterr().err


def test_lab_without_its_first_notebook(capsys, monkeypatch):
    monkeypatch.setattr(lab, "FIRST", "notebooks/none.ipynb")
    assert lab.main([]) == 2
    assert "course.py notebooks" in capsys.readouterr().err


def answer(url, deadline):
    """Return the JSON that a server which is just starting gives, or fail at the deadline."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as reply:
                return json.load(reply)
        except (urllib.error.URLError, OSError):
            assert time.monotonic() < deadline, "JupyterLab did not answer"
            time.sleep(0.1)


def hears_ctrl_c():
    """Undo, in a child, that a shell makes what it runs in the background deaf to Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(os.name == "nt", reason="there Ctrl-C cannot be sent to one process")
def test_lab_starts_quiet_and_ends_with_ctrl_c(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = f"from tools import lab; lab.FIRST = 'course.py'; lab.main({['--no-browser']} + " \
              f"['--port', '{port}'])"
    environment = {**os.environ, "HOME": str(tmp_path), "JUPYTER_TOKEN": "open"}
    server = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=environment,
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, preexec_fn=hears_ctrl_c)
    try:
        plugin = "@jupyterlab/apputils-extension:notification"
        url = f"http://127.0.0.1:{port}/lab/api/settings/{plugin}?token=open"
        settings = answer(url, time.monotonic() + 90)
        defaults = settings["schema"]["properties"]
        assert defaults["fetchNews"]["default"] == "false"
        assert defaults["checkForUpdates"]["default"] is False
        specs = answer(f"http://127.0.0.1:{port}/api/kernelspecs?token=open",
                       time.monotonic() + 60)
        assert specs["default"] == "python3"
        server.send_signal(signal.SIGINT)
        _, said = server.communicate(timeout=120)
        assert server.returncode == 0, said
        assert list(tmp_path.iterdir()) == []  # nothing in the home folder
    finally:
        server.kill()
        server.wait()


# --- doctor ---


def test_doctor_finds_this_environment_in_order(capsys):
    assert doctor.main([]) == 0
    shown = capsys.readouterr().out
    for word in ("Python", "torch", "triton", "JupyterLab", "disk", "The course runs here."):
        assert word in shown


def test_doctor_says_what_is_not_in_order(capsys):
    def broken():
        yield doctor.Finding("FAULT", "torch", "cannot be imported")

    assert doctor.main([], checks=(doctor.python, broken)) == 1
    assert "Not in order: torch." in capsys.readouterr().out


@pytest.mark.parametrize(
    "cuda, card, runs, words",
    [
        (None, None, False, None),
        ("12.8", "/usr/bin/nvidia-smi", True, None),
        ("12.8", None, False, "carries CUDA 12.8 for nothing"),
        ("12.8", "/usr/bin/nvidia-smi", False, "finds no card"),
        (None, "/usr/bin/nvidia-smi", False, "without CUDA"),
    ],
)
def test_doctor_speaks_of_another_torch_only_where_it_helps(cuda, card, runs, words, capsys):
    seen = SimpleNamespace(
        is_available=lambda: runs,
        get_device_name=lambda: "a card",
        get_device_properties=lambda index: SimpleNamespace(total_memory=8e9),
    )
    torch = SimpleNamespace(cuda=seen, version=SimpleNamespace(cuda=cuda))
    checks = (doctor.python, lambda: doctor.gpu(torch, which={"nvidia-smi": card}.get))
    assert doctor.main([], checks=checks) == 0
    shown = capsys.readouterr().out
    assert (doctor.TORCH_WORDS in shown) == (words is not None)
    assert ("see below" in shown) == (words is not None) and (words or "") in shown


def test_doctor_takes_no_arguments(capsys):
    assert doctor.main(["--all"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("version, level", [("3.6.0", "note"), ("3.7.1", "ok"), ("3.10.0", "ok")])
def test_doctor_knows_which_triton_interprets(version, level):
    assert doctor.triton_version(version).level == level


def test_chromium_is_looked_for(tmp_path):
    empty = {"PATH": str(tmp_path)}
    assert chromium.find_chromium(empty, places=()) is None
    assert "apt install chromium" in chromium.why_none(empty)
    browser = tmp_path / "google-chrome"
    browser.write_text("#!/bin/sh\n")
    browser.chmod(0o755)
    assert chromium.find_chromium(empty, places=()) == str(browser)
    assert chromium.find_chromium({**empty, "CHROMIUM": "/no/such"}, places=()) is None
    assert "/no/such" in chromium.why_none({"CHROMIUM": "/no/such"})
    assert chromium.find_chromium({"PATH": "", "CHROMIUM": str(browser)}) == str(browser)


# --- reset ---

EXERCISE = '''\
# %% [markdown]
# 01.1 Add. difficulty 1/5, importance 1/5, 3 minutes.

# %% exercise_id="01.1" points=1 tags=["exercise"]
def add(one, other):
    """Return the sum."""
    ### BEGIN SOLUTION
    return one + other
    ### END SOLUTION
'''


@pytest.fixture
def course(tmp_path):
    source = tmp_path / "sources" / "exercises" / "01__adding.py"
    source.parent.mkdir(parents=True)
    source.write_text(EXERCISE)
    target = reset.exercises(tmp_path)["01__adding"]
    build.build(target)
    return tmp_path, target.path


def test_reset_brings_back_the_shipped_notebook(course):
    root, path = course
    shipped = path.read_bytes()
    path.write_text("what the learner wrote")
    said = reset.reset(root, "01__adding")
    (kept,) = (root / "backups").iterdir()
    assert kept.name in said and kept.read_text() == "what the learner wrote"
    assert path.read_bytes() == shipped
    assert b"one + other" not in shipped


def test_reset_of_an_untouched_or_lost_notebook(course):
    root, path = course
    assert "already" in reset.reset(root, "01__adding")
    assert not (root / "backups").exists()
    path.unlink()
    assert "as shipped again." in reset.reset(root, "01__adding")
    assert path.exists()


def test_reset_names_the_stems_it_knows(course):
    with pytest.raises(ValueError, match="'01'.*01__adding"):
        reset.reset(course[0], "01")


@pytest.mark.parametrize("arguments", [[], ["no_such_stem"], ["a", "b"]])
def test_reset_refuses_in_one_sentence(arguments, capsys):
    assert reset.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
