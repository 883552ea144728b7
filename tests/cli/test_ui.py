"""`muster ui`: a door to the pages of a crew that only its own user reaches, and links to those of a server."""

from __future__ import annotations

import html
import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cli_owner import Cli, Owner
from far_servers import SECRET, FarOwner, far_owner
from page_reader import Reader
from patience import PATIENCE_S, until


class Door(NamedTuple):
    process: subprocess.Popen[bytes]
    port: int
    path: str
    """Of the link that it has printed."""

    def enter(self) -> Reader:
        reader = Reader(self.port)
        shown = reader.send(reader.get(self.path).form("Sign in"))
        assert shown.status == 200 and "Overview" in shown.text
        return reader


@pytest.fixture
def door(owner: Owner, start: Callable[..., subprocess.Popen[bytes]]) -> Door:
    return opened(start("ui", "--no-open", "--json"))


def opened(process: subprocess.Popen[bytes]) -> Door:
    assert process.stdout is not None
    link = json.loads(process.stdout.readline())["link"]
    host, _, path = link.removeprefix("http://").partition("/")
    return Door(process, int(host.rpartition(":")[2]), f"/{path}")


def test_the_link_of_a_local_crew_lets_one_browser_in_once(owner: Owner, door: Door) -> None:
    assert Reader(door.port).get("/tasks").status == 401
    reader = door.enter()
    assert "billing/api" in reader.get("/tasks").text
    again = Reader(door.port)
    used = again.send(again.get(door.path).form("Sign in"))
    assert used.status == 401 and "was used already" in used.text
    assert again.get("/").status == 401


def test_a_page_that_was_asked_for_is_opened_by_a_link_that_works_once(owner: Owner, door: Door) -> None:
    refused = Reader(door.port).get("/tasks?plan=billing")
    assert refused.status == 401 and "paste your token" not in refused.text, "of which it takes none"
    reader = Reader(door.port)
    form = reader.get(f"{door.path}&back=%2Ftasks%3Fplan%3Dbilling").form("Sign in")
    let = reader.post(form.action, form.fields)
    assert (let.status, let.headers["location"]) == (303, "/tasks?plan=billing")


def test_what_is_done_there_is_done_as_the_user_who_runs_it(owner: Owner, door: Door) -> None:
    reader = door.enter()
    number = owner.tasks()["other"].id
    shown = reader.send(reader.get(f"/tasks/{number}").form("Pause"))
    assert shown.status == 200 and owner.tasks()["other"].status == "PAUSED"
    assert "user:" in shown.text


def test_nobody_else_is_let_through(owner: Owner, door: Door) -> None:
    reader = door.enter()
    form = reader.get(f"/tasks/{owner.tasks()['other'].id}").form("Pause")
    before = owner.fingerprint()
    assert reader.ask("GET", "/tasks", Host=f"evil.example:{door.port}").status == 403
    assert reader.ask("GET", "/api/v1/status").status == 403
    assert reader.ask("POST", "/api/v1/shutdown", b"{}").status == 403
    assert reader.post(form.action, form.fields, Origin="https://evil.example").status == 403
    assert reader.post(form.action, {**form.fields, "csrf": "0" * 32}).status == 403
    assert reader.post(form.action, form.fields, Cookie="").status == 401
    assert owner.fingerprint() == before


def test_a_browser_stays_let_in_while_the_owner_goes_and_comes(owner: Owner, door: Door) -> None:
    reader = door.enter()
    owner.stop()
    gone = reader.get("/tasks")
    assert gone.status == 503 and "no crew is up" in gone.text
    owner.start()
    assert "billing/api" in reader.get("/tasks").text


def test_a_folder_that_has_moved_is_told_on_the_pages_and_in_the_terminal(
    owner: Owner, door: Door, root: Path
) -> None:
    reader = door.enter()
    form = reader.get(f"/tasks/{owner.tasks()['other'].id}").form("Pause")
    owner.stop()
    there = root.rename(root.with_name("moved here"))
    assert door.process.stderr is not None
    said = door.process.stderr.readline().decode()
    for text in (said, html.unescape(reader.get("/tasks").text)):
        assert f"{root} was moved to {there}" in text and f"muster -C '{there}' ui" in text
        assert "no crew is up" not in text
    refused = reader.send(form)
    assert refused.status == 503 and "this was not sent, and nothing was changed" in refused.text
    root.mkdir()
    assert "was moved to" in reader.get("/tasks").text, "what lies there now is another project's"
    root.rmdir()
    there.rename(root)
    owner.start()
    assert "billing/api" in reader.get("/tasks").text


def test_a_folder_that_is_gone_is_told(owner: Owner, door: Door, root: Path, tmp_path: Path) -> None:
    reader = door.enter()
    owner.stop()
    kept = root.rename(tmp_path / "kept")
    shutil.copytree(kept, root, ignore=shutil.ignore_patterns("*.sock"))
    shutil.rmtree(kept)
    assert "was deleted or replaced while its pages were open" in reader.get("/").text


POSTED = {
    "/tasks/{}/cancel": {"reason": "not <needed>"},
    "/tasks/{}/answer": {"text": "not <needed>"},
    "/tasks/{}/retry": {"note": "not <needed>"},
    "/tasks/{}/edit": {"title": "not <needed>"},
    "/tasks/{}/review?attempt=1": {"words": "not <needed>"},
    "/plans/billing/review": {"text.0+12": "not <needed>", "do": "back"},
    "/plans/billing/cancel": {"reason": "not <needed>"},
    "/plans/billing/merge": {},
    "/plans/billing/pull-request": {},
    "/bulk/retry?status=failed": {"ids": "1", "note": "not <needed>"},
    "/settings/token-add": {"name": "not <needed>", "member": "ada"},
}


@pytest.mark.parametrize("path", POSTED)
def test_what_could_not_be_sent_is_given_back_and_never_sent_by_itself(
    owner: Owner, door: Door, path: str
) -> None:
    reader = door.enter()
    csrf = reader.get("/").form("Sign out").fields["csrf"]
    page = path.format(owner.tasks()["other"].id)
    owner.stop()
    looked = reader.get(page)
    assert looked.status == 503 and "data-again" in looked.text, "it was only looked at"
    refused = reader.post(page, {**POSTED[path], "csrf": csrf})
    assert refused.status == 503 and "data-again" not in refused.text
    assert "this was not sent; nothing was changed" in refused.text
    assert f'href="{page}">Back to its page' in refused.text
    assert ("not &lt;needed&gt;</pre>" in refused.text) == ("not <needed>" in POSTED[path].values())
    assert csrf not in refused.text.partition("What you wrote")[2].partition("</section>")[0]


def test_signed_out_is_signed_out(owner: Owner, door: Door) -> None:
    reader = door.enter()
    cookie = reader.cookie
    out = reader.post("/sign-out", reader.get("/").form("Sign out").fields)
    assert out.status == 303
    assert Reader(door.port, cookie).get("/").status == 401


def test_it_listens_only_while_it_runs(owner: Owner, door: Door) -> None:
    door.process.send_signal(signal.SIGINT)
    assert door.process.wait(PATIENCE_S) in {0, -signal.SIGINT}

    def refused() -> bool:
        try:
            Reader(door.port).get("/")
        except OSError:
            return True
        return False

    until(refused, "nobody listens there any more")


def test_an_agent_opens_no_pages(owner: Owner, cli: Cli) -> None:
    ran = cli("ui", "--no-open", env=owner.inside())
    assert (ran.code, ran.raw) == (4, b"") and "is for a person" in ran.err


@pytest.fixture
def far(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FarOwner]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with far_owner(tmp_path / "elsewhere") as made:
        yield made


def test_a_link_to_a_server_is_opened_there(far: FarOwner, cli: Cli) -> None:
    ran = cli("ui", "--no-open", "--json", "--server", far.url, env={"MUSTER_TOKEN": SECRET})
    assert ran.code == 0
    link = json.loads(ran.out)["link"]
    assert link.startswith(f"{far.url}/enter?code=")
    reader = Reader(int(far.url.rpartition(":")[2]))
    shown = reader.send(reader.get(link.removeprefix(far.url)).form("Sign in"))
    assert shown.status == 200 and "user:ada" in shown.text and "billing" in shown.text
