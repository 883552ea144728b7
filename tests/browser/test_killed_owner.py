"""A page that is open while its crew's owner is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster_command import MUSTER, run_muster
from patience import PATIENCE_S, until

expect.set_options(timeout=PATIENCE_S * 1000)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """With a crew that is up."""
    (tmp_path / "muster.toml").write_text(
        'agent = "shell"\n[agents.shell]\ncommand = ["sh"]\nprompt = "script"\n'
    )
    run = run_muster(tmp_path, "up", "--daemon", "--workers", "1")
    assert run.returncode == 0, run.stderr
    yield tmp_path
    run_muster(tmp_path, "down", "--now")


@pytest.fixture
def link(folder: Path) -> Iterator[str]:
    door = subprocess.Popen([*MUSTER, "ui", "--no-open", "--json"], cwd=folder, stdout=subprocess.PIPE)
    assert door.stdout is not None
    yield json.loads(door.stdout.readline())["link"]
    door.terminate()
    door.wait(PATIENCE_S)
    door.stdout.close()


def test_it_goes_on_with_the_next_owner(browser: Browser, folder: Path, link: str) -> None:
    api = Api(Connection(Project(folder).socket))
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(link)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        expect(page.locator("#link")).to_have_text("live")
        page.evaluate("window.same = true")
        before = api.get("/api/v1/owner")["pid"]
        os.kill(before, signal.SIGKILL)
        (folder / "plan.md").write_text("- [ ] After the kill {#after}\n  echo said; exit 0\n")
        run = run_muster(
            folder, "plan", "add", "plan.md", env=dict(os.environ)
        )  # the browser's loop runs here
        assert run.returncode == 0, run.stderr
        expect(page.get_by_role("link", name="plan", exact=True)).to_be_visible()
        expect(page.locator("#link")).to_have_text("live")
        assert page.evaluate("window.same")
        page.get_by_role("link", name="plan", exact=True).click()
        page.locator(".tree").get_by_role("link", name="after", exact=True).click()
        expect(page.locator("h1")).to_contain_text("completed")
        expect(page.get_by_label("Transcript", exact=True)).to_have_text("said")
    api.close()


def test_an_owner_that_hangs_is_not_called_live(browser: Browser, folder: Path, link: str) -> None:
    api = Api(Connection(Project(folder).socket))
    owner = api.get("/api/v1/owner")["pid"]
    api.close()
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(link)
        badge = page.locator("#link")
        expect(badge).to_have_text("live")
        try:
            os.kill(owner, signal.SIGSTOP)
            expect(badge).to_have_text(re.compile("stale since"))
        finally:
            os.kill(owner, signal.SIGCONT)
        expect(badge).to_have_text("live")


@pytest.mark.parametrize("scripts", [True, False])
def test_what_was_pressed_while_nobody_was_up_is_not_done_later(
    browser: Browser, folder: Path, link: str, scripts: bool
) -> None:
    (folder / "plan.md").write_text("- [ ] Stays {#stays}\n  exec sleep 900\n")
    assert run_muster(folder, "plan", "add", "plan.md").returncode == 0
    with browser.new_context(java_script_enabled=scripts) as context:
        page = context.new_page()
        page.goto(link)
        if not scripts:
            page.get_by_role("button", name="Sign in").click()
        page.get_by_role("link", name="Tasks", exact=True).click()
        page.get_by_role("link", name="plan/stays").first.click()
        page.get_by_role("link", name="Cancel…").click()
        page.get_by_label("Why?").fill("by mistake")
        posted: list[str] = []
        page.on("request", lambda one: posted.append(one.url) if one.method == "POST" else None)
        assert run_muster(folder, "down", "--now").returncode == 0
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("main")).to_contain_text("this was not sent; nothing was changed")
        expect(page.locator("#written")).to_contain_text("by mistake")
        another = context.new_page()
        another.goto(page.url)  # it was only looked at: with scripts, this one comes back by itself
        expect(another.locator("main")).to_contain_text("no crew is up, so there is nothing to see")
        run = run_muster(folder, "up", "--daemon", "--workers", "1")
        assert run.returncode == 0, run.stderr
        if scripts:
            expect(another.get_by_role("button", name="Cancel")).to_be_visible()
        expect(page.locator("#written")).to_contain_text("by mistake")
        assert len(posted) == 1
        shown = ("task", "show", "plan/stays", "--fields", "status")
        until(
            lambda: run_muster(folder, *shown).stdout == "RUNNING\n",
            "it runs again, and its form is for that",
        )
        page.get_by_role("link", name="Back to its page").click()
        page.get_by_label("Why?").fill("on purpose")
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("h1")).to_contain_text("cancelled")
