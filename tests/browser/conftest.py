"""Pages in a real browser, before a real owner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import browsers
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from far_servers import FarOwner, far_owner
from patience import PATIENCE_S

# A busy machine is slow: the 5 s that are usual are less than a large page may take there.
expect.set_options(timeout=PATIENCE_S * 1000)


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Of the test's own: while one is there its loop runs in this thread, where no other could."""
    with sync_playwright() as playwright:
        try:
            browsers.chromium()
        except browsers.NotInstalled as missing:
            pytest.skip(str(missing))
        with browsers.launched(playwright) as made:
            yield made


@pytest.fixture(scope="session")
def axe() -> str:
    try:
        return browsers.axe()
    except browsers.NotInstalled as missing:
        pytest.skip(str(missing))  # npm installs it, and not every machine has that


@pytest.fixture
def far(tmp_path: Path) -> Iterator[FarOwner]:
    """`billing` as `Owner.seed` has it, over TCP."""
    with far_owner(tmp_path / "project") as made:
        yield made


@pytest.fixture
def let_in(browser: Browser, far: FarOwner) -> Iterator[browsers.Let]:
    """A page of a browser that was let in.  It fails where that says an error, or asks anybody but its server."""
    wrong: list[str] = []
    contexts: list[BrowserContext] = []

    def open_one(**options: object) -> Page:
        context = browser.new_context(base_url=far.url, **options)  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE_S * 1000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda one: None if one.url.startswith(far.url) else wrong.append(one.url))
        page.on("console", lambda said: wrong.append(said.text) if "Content Security" in said.text else None)
        page.goto(browsers.sign_in_path(far))
        if options.get("java_script_enabled") is False:
            page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{far.url}/")
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not wrong
