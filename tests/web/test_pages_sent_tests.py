"""A test that is sent from the settings' page: `done` is said of what was taken, and of all else the cause."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from over_network import People
from test_pages_sign_in import let_in
from web_site import Site

from muster.engine.services.notifier import Notifier
from muster.model import commands as c
from muster.model.access import Role
from muster.model.notify import ChannelPlan, Matter
from muster.outbound import desktop
from muster.outbound.channels import Teller
from muster.ports.hooks import Channel
from muster.runtimes.local import SystemClock
from muster.web.pages import sent_tests
from page_reader import Reader, Shown
from patience import PATIENCE_S

DESK = ChannelPlan(name="desk", kind="desktop", to="", tells=(Matter.DEAD,))
DONE = "Send a test there: done."


def in_loop(site: Site, make: Callable[[], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        return await make()

    return asyncio.run_coroutine_threadsafe(run(), site._loop).result(PATIENCE_S)


def notifier_of(site: Site) -> Notifier:
    async def nothing() -> str:
        return ""

    engine = site.backend.engine
    term = in_loop(site, lambda: engine.execute(c.NewBoot())).term
    for_all = SimpleNamespace(of=lambda _: engine, execute=engine.execute)
    channel = Channel(DESK, None, None, Teller(desktop.Desktop(asyncio.to_thread), nothing))
    return Notifier(SystemClock("boot-a"), site.backend.reads, for_all, [channel], base="", term=term)


@contextmanager
def telling(site: Site, notifier: Notifier) -> Iterator[None]:
    """It looks for messages, as a crew's does."""

    async def look() -> None:
        while True:
            await notifier.run_once()
            await asyncio.sleep(0.05)

    looking = asyncio.run_coroutine_threadsafe(look(), site._loop)
    try:
        yield
    finally:
        looking.cancel()


@pytest.fixture
def reader(site: Site, people: People, port: int) -> Reader:
    site.owner.channels = (DESK,)
    return let_in(port, people.token(Role.ADMIN, member="ada"))


@pytest.fixture
def notifier(site: Site) -> Notifier:
    made = notifier_of(site)
    in_loop(site, made.run_once)
    return made


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What shows messages on this desktop; there is none yet."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(desktop.sys, "platform", "linux")
    which = desktop.shutil.which
    monkeypatch.setattr(desktop.shutil, "which", lambda name: which(name, path=str(folder)))
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder / "notify-send"


def send(
    reader: Reader, path: str = "/settings/channel-test?id=desk", label: str = "Send a test there"
) -> Shown:
    return reader.send(reader.get(path).form(label))


@pytest.mark.parametrize(
    ("script", "cause", "helps"),
    [
        ("", "this machine has no notify-send", "apt install libnotify-bin"),
        ("exit 7", "notify-send ended with 7;", "is somebody logged in to a desktop?"),
        ("exec sleep 60", "notify-send has not ended within 1 s;", "is somebody logged in to a desktop?"),
    ],
)
def test_a_test_that_was_not_taken_says_why_and_what_helps(
    site: Site,
    reader: Reader,
    notifier: Notifier,
    program: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    cause: str,
    helps: str,
) -> None:
    monkeypatch.setattr(desktop, "ANSWER_S", 1.0)
    if script:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    with telling(site, notifier):
        shown = send(reader)
    assert shown.status == 503 and DONE not in shown.text
    assert f"desk has not taken it: {cause}" in shown.text and helps in shown.text
    assert "it is tried again: muster notify messages desk" in shown.text


def test_a_test_that_was_taken_is_done(site: Site, reader: Reader, notifier: Notifier, program: Path) -> None:
    program.write_text(f'#!/bin/sh\necho "$@" > {program.with_name("shown")}\n')
    program.chmod(0o755)
    with telling(site, notifier):
        shown = send(reader)
    assert shown.path == "/settings?done=channel-test" and DONE in shown.text
    assert "This is a test." in program.with_name("shown").read_text()


def test_a_test_that_nobody_sends_is_not_done(
    site: Site, reader: Reader, notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_tests, "TEST_TRIED_S", 0.1)
    shown = send(reader)
    assert shown.status == 503 and DONE not in shown.text
    assert "desk: the test is still on its way" in shown.text and "muster notify messages desk" in shown.text
    site.owner.unattended = True
    shown = send(reader)
    assert shown.status == 503 and "the test is sent once a crew is up" in shown.text
    assert "muster up" in shown.text


def test_a_webhook_is_waited_for_as_well(
    site: Site, reader: Reader, notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_tests, "TEST_TRIED_S", 0.1)
    made = site.post("/api/v1/webhooks", {"url": "http://127.0.0.1:9/hook", "actor": "ada"})
    shown = send(reader, f"/settings/webhook-test?id={made['id']}", "Send a test")
    assert shown.status == 503 and "Send a test: done." not in shown.text
    assert f"muster webhook messages {made['id']}" in shown.text
