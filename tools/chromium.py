"""Where the browser is that the browser tests drive (standard library only)."""

import os
import shutil
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    r"C:\Program Files\Google\Chrome\Application\chrome.exe",
    r"C:\Program Files (x86)\Google\Chrome\Application\chrome.exe",
)


def find_chromium(environment=os.environ, places=PLACES) -> str | None:
    """Return the path of a Chromium or Chrome, or None where none is found.

    CHROMIUM in the environment is believed before anything else; where it names no file
    there is no Chromium, so that a typing mistake does not pass unseen.
    """
    named = environment.get("CHROMIUM")
    if named:
        return named if Path(named).is_file() else None
    for name in NAMES:
        found = shutil.which(name, path=environment.get("PATH"))
        if found:
            return found
    return next((place for place in places if Path(place).is_file()), None)


def why_none(environment=os.environ) -> str:
    """Return the sentence that goes with find_chromium's None."""
    named = environment.get("CHROMIUM")
    if named:
        return f"CHROMIUM names {named}, and there is no such file"
    return "no Chromium or Chrome was found (Debian: apt install chromium; or set CHROMIUM)"
