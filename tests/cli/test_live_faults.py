"""The live watch where an owner goes, a question is refused, or the watch itself has a fault."""

from __future__ import annotations

import pytest
from live_console import joined

from far_servers import SECRET, far_owner
from muster.cli.context import connect_to
from muster.cli.live.dialog import Prompt
from muster.cli.live.feed import Listing, LiveFeed
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.engine.batch import drive
from muster.model import commands as c
from patience import until


def test_what_happens_to_no_task_is_asked_of_no_task(owner):
    connection = Connection(owner.socket)
    tasks = Listing(Api(connection), None, lambda: 0.0)
    tasks.news(drive(owner.store.reads.last_event_id()))
    owner.do(c.NewBoot())
    owner.do(c.Skip(task_id=owner.tasks()["tests"].id, actor="user:ann"))
    found = tasks.news(drive(owner.store.reads.last_event_id()))
    assert {row["key"]: row["status"] for row in found}["tests"] == "CANCELLED"
    connection.close()


def test_what_was_written_is_kept_while_there_is_no_owner(owner, console):
    number = owner.tasks()["api"].id
    owner.do(c.Ask(task_id=number, epoch=1, question="Which schema?"))
    live = console("watch")
    live.asked("billing/api", "Which schema?")
    live.press("the new one")
    owner.stop()
    live.until(lambda text: "● live" not in text)
    live.press("\r")
    live.until(lambda text: "what you wrote is kept for the next try" in joined(text))
    owner.start()
    owner.do(c.NewBoot())
    live.until(lambda text: "● live" in text)
    assert "what you wrote is kept for the next try" in joined(live.text())
    live.press("w")
    live.until(lambda text: "Your answer: the new one_" in text)
    live.press("\r")
    live.until(lambda _: "billing/api: Answer: done" in live.foot())
    assert "the new one" in str(drive(owner.store.reads.events(after_id=0, task_id=number, limit=1000)))


def test_why_an_action_was_refused_is_not_hidden_by_what_cannot_be_read(root, tmp_path, console):
    with far_owner(tmp_path / "elsewhere") as far:
        live = console("watch", "--server", far.url, MUSTER_TOKEN=SECRET)
        live.choose("billing/api")
        live.until(lambda _: "c cancel" in live.foot())
        live.press("c")
        live.until(lambda text: "cancel billing/api?" in text)
        (mine,) = [token for token in drive(far.store.reads.tokens()) if token.name == SECRET]
        far.do(c.RevokeToken(token_id=mine.id, actor="user:ann"))
        live.until(lambda text: "was revoked" in text.splitlines()[0])
        live.press("y")
        live.until(lambda text: "billing/api: token" in text)
        live.resize(99, 24)
        live.until(lambda text: "was revoked" in text.splitlines()[0] and "billing/api: token" in text)


def test_a_fault_of_the_feed_ends_the_watch_with_it(owner):
    with connect_to(Project(owner.root)) as context, LiveFeed(context, None) as live:
        until(lambda: list(live.take()), "news")
        live.ask(Prompt("pause", {}))
        with pytest.raises(KeyError):
            until(lambda: not list(live.take()) and False, "the fault")
