"""Find a Chromium for the browser checks, and start it so that it asks nobody.

python tools/chromium.py    say which one would be used
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Error, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# No sandbox: containers and root have none. The rest keeps Chromium from calling home.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class NoChromiumError(RuntimeError):
    """There is no Chromium here, and none could be installed."""


def system_chromium() -> str | None:
    """The first of the usual names on the search path."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def playwright_chromium() -> str | None:
    """The one that Playwright downloaded, if it has."""
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).is_file() else None


def run(*command: str) -> bool:
    """Run a command that installs something; whether it worked."""
    print("Chromium:", *command, flush=True)
    try:
        subprocess.run(
            command,
            check=True,
            timeout=600,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f"Chromium: that failed ({error})", flush=True)
        return False
    return True


def download_chromium() -> str | None:
    """Let Playwright fetch its own."""
    if run(sys.executable, "-m", "playwright", "install", "chromium"):
        return playwright_chromium()
    return None


def install_debian_package() -> str | None:
    """Install Debian's package, where we may."""
    if os.name != "posix" or os.geteuid() != 0 or not shutil.which("apt-get"):
        return None
    install = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium")
    return (
        system_chromium() if run("apt-get", "update", "-qq") and run(*install) else None
    )


WAYS: tuple[tuple[str, Callable[[], str | None]], ...] = (
    ("on the search path", system_chromium),
    ("downloaded by Playwright before", playwright_chromium),
    ("downloaded by Playwright now", download_chromium),
    ("installed from Debian's package", install_debian_package),
)


def find_chromium() -> str:
    """Return the path of a Chromium, installing one if there is none.

    Raises:
        NoChromiumError: there is none, and no way to install one worked.
    """
    for words, way in WAYS:
        if path := way():
            print(f"Chromium: {path}, {words}", flush=True)
            return path
    raise NoChromiumError(
        f"No Chromium: none of {', '.join(NAMES)} is installed, and neither Playwright "
        "nor apt-get could install one. Install Chromium (on Debian and Ubuntu: "
        "apt-get install chromium; elsewhere: python -m playwright install chromium) "
        "and run the checks again."
    )


@contextmanager
def chromium() -> Iterator[Browser]:
    """A Chromium with a new, empty profile; closed at the end."""
    path = find_chromium()
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        except Error as error:
            raise NoChromiumError(f"{path} does not start: {error}") from error
        try:
            yield browser
        finally:
            browser.close()


if __name__ == "__main__":
    find_chromium()
