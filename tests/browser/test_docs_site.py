"""The site that `./run docs` makes: without a warning or a dead link, and it asks no other host for anything."""

from __future__ import annotations

import fcntl
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest
import site_files
from playwright.sync_api import Browser

from patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PAGES = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))


class Built(NamedTuple):
    folder: Path
    said: str
    """While it was built."""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Once for all processes of a run, whichever asks first."""
    shared = tmp_path_factory.getbasetemp().parent
    made = Built(shared / "site", "")
    words = shared / "site.said"
    with (shared / "site.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not words.exists():
            done = subprocess.run(
                [ROOT / "run", "docs", "--site-dir", made.folder],
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            words.write_text(done.stderr, "utf-8")
    return made._replace(said=words.read_text("utf-8"))


def test_it_is_built_without_a_warning_and_a_dead_link(built: Built) -> None:
    assert re.findall(r"(?m)^(?!INFO)\w.*", built.said) == []
    assert site_files.wrong_in(built.folder) == []
    assert (built.folder / "index.html").exists()
    listed = re.findall(r"\]\(([^)]+\.md)\): \S", (built.folder / "llms.txt").read_text("utf-8"))
    assert sorted(listed) == sorted(["index.md", *map(str, PAGES)])
    assert [name for name in listed if not (built.folder / name).is_file()] == []


def test_what_is_wrong_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="here"></h1><a href="#here"></a><a href="#there"></a><a href="b.html"></a><a href="a.html#x"></a>'
        '<script src="https://cdn.example/x.js"></script><img src="gone.png"><p style="background: url(//h/i)">'
    )
    (tmp_path / "a.css").write_text('@import "https://fonts.example/x.css"; p { background: url(data:,) }')
    assert site_files.wrong_in(tmp_path) == [
        "a.html loads https://cdn.example/x.js",
        "a.html loads gone.png",
        "a.html loads //h/i",
        "a.html leads to #there, and there is no such place",
        "a.html leads to b.html, which is not there",
        "a.html leads to a.html#x, and there is no such place",
        "a.css loads https://fonts.example/x.css",
    ]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(built: Built) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=built.folder)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_it_is_searched_and_copied_from_as_files_and_served(
    browser: Browser, served: str, built: Built
) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    context.set_default_timeout(PATIENCE_S * 1000)
    asked: list[str] = []
    context.on("request", lambda one: asked.append(one.url))
    for root in (f"{built.folder.as_uri()}/", served):
        page = context.new_page()
        asked.clear()
        page.goto(f"{root}reference/http.html")
        page.goto(f"{root}index.html")
        page.keyboard.press("/")
        page.get_by_placeholder("Search").press_sequentially("fencing epoch")
        found = page.locator(".md-search-result__link").first
        found.wait_for()
        assert ".html" in (found.get_attribute("href") or "")
        page.goto(f"{root}quickstart.html")
        page.locator("pre", has_text="$ muster init").first.locator(".md-code__button").click()
        page.get_by_text("Copied to clipboard").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == "muster init\nmuster run plan.md"
        assert len(asked) > 5
        assert [url for url in asked if not url.startswith((root, "data:", "blob:", "about:"))] == []
    context.close()
