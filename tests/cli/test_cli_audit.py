"""`muster audit`: list and verify."""

from __future__ import annotations

import json

import pytest

from muster.engine.batch import drive
from muster.model import commands as c


def seal(owner):
    term = owner.do(c.NewBoot()).term
    events = drive(owner.store.reads.numbered_events(0, None, 500))
    owner.do(c.AddSeal(term=term, seal=owner.signer.seal(events, "0" * 64, 1)))


def test_list(cli, owner):
    out = cli("audit", "list").out
    assert "billing/model" in out and "by user:ann" in out
    assert len(cli("audit", "list", "--limit", "2").out.splitlines()) == 2
    errors = json.loads(cli("audit", "list", "--level", "ERROR", "--json").out)
    assert {event["level"] for event in errors} == {"ERROR"}
    of_api = json.loads(cli("audit", "list", "--task", "api", "--since", "1h", "--json").out)
    assert {event["key"] for event in of_api} == {"api"} and of_api[0]["event"] == "enqueued"


def test_verify(cli, owner):
    seal(owner)
    ran = cli("audit", "verify")
    assert ran.code == 0 and ran.out.startswith("whole: ")
    owner.store._writer.execute("DROP TRIGGER events_no_update")
    owner.store._writer.execute("UPDATE events SET message = 'nothing to see' WHERE id = 3")
    ran = cli("audit", "verify")
    assert ran.code == 1 and "broken  event 3 (" in ran.out
    ran = cli("audit", "verify", "--json")
    assert ran.code == 1 and json.loads(ran.out)["whole"] is False


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ((), 2, "VERB"),
        (("lst",), 2, "did you mean 'list'?"),
        (("list", "--task", "nope"), 3, "there is no task 'nope'"),
        (("list", "--task", "api#1"), 2, "leave out #1"),
        (("list", "--level", "bad"), 2, "'bad' is not one of debug"),
        (("list", "--since", "soon"), 2, "'soon' is not a duration"),
        (("list", "--limit", "0"), 2, "from 1 to 10000"),
        (("list", "api"), 2, "knows no argument 'api'"),
        (("verify", "--fix"), 2, "knows no option '--fix'"),
    ],
)
def test_wrong_input(refused, owner, argv, code, message):
    refused("audit", *argv, code=code, message=message)


def test_without_an_owner(cli, root):
    (root / "muster.toml").touch()
    assert cli("audit", "verify").out.startswith("whole: 0 events sealed")
    key = root / ".muster" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    text = key.read_text()
    assert cli("audit", "list").out == "0 events\n"
    assert key.read_text() == text
    key.write_text("rubbish")
    ran = cli("audit", "verify")
    assert ran.code == 1 and "holds no key" in ran.err
