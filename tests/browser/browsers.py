"""What the tests of the pages need beside Python: a Chromium, and the rules of axe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright

from far_servers import SECRET, FarOwner
from page_reader import Reader

AXE = "axe-core@4.14.1"
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first one draws no window of its own, which takes the others a third of their CPU time."""

Let = Callable[..., Page]
"""A page of a browser that was let in, with these options of its context."""


class NotInstalled(Exception):
    """Says what is missing."""


def chromium() -> str:
    """Raises NotInstalled."""
    for name in CHROMIUM:
        if path := shutil.which(name):
            return path
    raise NotInstalled("no Chromium is on PATH: apt install chromium-headless-shell, or chromium")


@contextmanager
def launched(playwright: Playwright) -> Iterator[Browser]:
    """With a temporary folder of its own: what its processes make there stays where they are ended in the middle.

    Raises NotInstalled."""
    # Chromium's own sandbox refuses to be root's.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    path = chromium()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        made = playwright.chromium.launch(
            executable_path=path,
            args=[*options, "--disable-dev-shm-usage"],
            env={**os.environ, "TMPDIR": folder},
        )
        try:
            yield made
        finally:
            made.close()


def sign_in_path(far: FarOwner) -> str:
    reader = Reader(int(far.url.rpartition(":")[2]))
    asked = reader.ask("POST", "/api/v1/sign-in-links", b"{}", Authorization=f"Bearer {SECRET}")
    path: str = json.loads(asked.text)["path"]
    return path


def axe() -> str:
    """Its source, from npm, kept outside of the checkout.  Raises NotInstalled."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "muster" / AXE.replace("@", "-")
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise NotInstalled("npm is not on PATH: install Node.js 20 or newer")
        folder.mkdir(parents=True, exist_ok=True)
        quiet = ["--no-audit", "--no-fund", "--ignore-scripts"]
        command = [npm, "install", "--prefix", str(folder), *quiet, AXE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not script.exists():
            raise NotInstalled(f"npm could not install {AXE}: {done.stderr.strip()[-300:]}")
    return script.read_text("utf-8")
