"""Pages without a browser: what they show, what their forms do, and what they take from nobody else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator

import pytest
from over_network import OPENLY, listening
from web_site import Site

from muster.model.actions import _COMMANDS
from muster.model.forms import TASK_ACTIONS
from muster.web.app import declared, pages
from muster.web.openapi import document
from muster.web.pages import overview
from muster.web.pages import plans as plan_pages
from muster.web.pages.assets import STATIC, VERSION
from page_reader import Reader


@pytest.fixture
def reader(site: Site) -> Iterator[Reader]:
    """Of a server without login."""
    with listening(site, OPENLY) as port:
        yield Reader(port)


def asking(site: Site, question: str = "Which schema?") -> int:
    """A task that waits for an answer."""
    site.enqueue("a")
    site.register()
    (job,) = site.started()
    assert site.report(job, "ask", {"question": question})[0] == 200
    number: int = job["taskId"]
    return number


def task_of(site: Site, number: int) -> dict[str, object]:
    found: dict[str, object] = site.get(f"/api/v1/agent-tasks/{number}")["task"]
    return found


def test_every_page_is_drawn(site: Site, reader: Reader) -> None:
    asked = asking(site)
    site.enqueue("b", "c", plan="another/plan")
    (job,) = site.started("r2")[:1]
    paths = [
        "/",
        "/tasks",
        "/tasks?status=pending&plan=api",
        "/inbox",
        "/inbox?plan=api",
        "/plans",
        "/plans/api",
    ]
    paths += ["/plans/another%2Fplan", "/plans/api/cancel", "/enter"]
    paths += [f"/tasks/{asked}", f"/tasks/{asked}/skip", f"/tasks/{job['taskId']}?attempt=1"]
    paths += [f"/tasks/{job['taskId']}/transcript"]
    for path in paths:
        shown = reader.get(path)
        assert (shown.status, shown.headers["content-type"]) == (200, "text/html; charset=utf-8"), path
        assert "<h1>" in shown.text, path
        assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=|https?://", shown.text), path
        policy = shown.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert shown.headers["cache-control"] == "no-store"
        assert shown.headers["x-content-type-options"] == "nosniff"


def test_what_is_not_there_and_what_is_wrong_is_told_on_a_page(reader: Reader) -> None:
    for path, status in (
        ("/nowhere", 404),
        ("/tasks/7", 404),
        ("/plans/none", 404),
        ("/bulk/cancel?limit=red", 422),
    ):
        shown = reader.get(path)
        assert shown.status == status and shown.headers["content-type"].startswith("text/html")
        assert "nothing was changed" in shown.text or "there is no" in shown.text, shown.text
    assert json.loads(reader.ask("GET", "/nowhere", Accept="*/*").text)["code"] == "not_found"
    told = reader.get("/nowhere").text.partition("<main")[2]
    assert "muster api" not in told and '<a class="button" href="/">Overview</a>' in told


def test_an_action_is_done_by_a_form_alone(site: Site, reader: Reader) -> None:
    number = asking(site)
    shown = reader.get("/inbox")
    after = reader.send(shown.form("Answer"), text="the new one\r\nplease")
    assert after.status == 200 and after.path.startswith("/inbox?") and "Answer: done." in after.text
    assert task_of(site, number)["status"] == "PENDING"
    (answered,) = [
        one for one in site.get(f"/api/v1/agent-tasks/{number}")["events"] if one["event"] == "answered"
    ]
    assert answered["actor"].startswith("user:")
    paused = reader.send(reader.get(f"/tasks/{number}").form("Pause"))
    assert paused.path == f"/tasks/{number}?done=pause"
    assert task_of(site, number)["status"] == "PAUSED"


def test_what_ends_something_asks_on_the_server_first(site: Site, reader: Reader) -> None:
    number = site.enqueue("a")["a"]
    shown = reader.get(f"/tasks/{number}")
    assert "Cancel" not in shown.labels and f"/tasks/{number}/cancel" in shown.text
    question = reader.get(f"/tasks/{number}/cancel")
    assert task_of(site, number)["status"] == "PENDING", "a GET changes nothing"
    reader.send(question.form("Cancel"), reason="not needed")
    assert task_of(site, number)["status"] == "CANCELLED"
    gone = reader.get(f"/tasks/{number}/cancel")
    assert gone.status == 409 and "nothing was changed" in gone.text


def test_the_buttons_are_those_that_the_engine_allows(site: Site, reader: Reader) -> None:
    number = site.enqueue("a")["a"]
    for ended in (False, True):
        if ended:
            reader.send(reader.get(f"/tasks/{number}/cancel").form("Cancel"))
        shown = reader.get(f"/tasks/{number}")
        offered = {name for name in TASK_ACTIONS if f"/tasks/{number}/{name}" in shown.text}
        actions = set(map(str, task_of(site, number)["actions"]))  # type: ignore[call-overload]
        assert offered == actions & TASK_ACTIONS.keys()


def test_forms_have_the_names_and_fields_of_the_api() -> None:
    described = document(declared())
    assert TASK_ACTIONS.keys() <= _COMMANDS.keys()
    for name, action in TASK_ACTIONS.items():
        operation = described["paths"][f"/api/v1/agent-tasks/{{taskId}}/{name}"]["post"]
        reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[
            2
        ]
        known = described["components"]["schemas"][reference]["properties"]
        assert {field.name for field in action.fields} <= known.keys(), name


def test_an_answer_is_to_the_question_that_was_read(site: Site, reader: Reader) -> None:
    number = asking(site, "Which schema?")
    old = reader.get(f"/tasks/{number}").form("Answer")
    reader.send(old, text="the new one")
    late = reader.send(old, text="the old one")
    assert late.status == 409 and "was answered meanwhile" in late.text and "the old one" in late.text
    site.post("/worker/v1/gone", {"taskId": number, "epoch": 1})
    (job,) = site.started("r2")
    site.report(job, "ask", {"question": "May I delete it?"})
    refused = reader.send(old, text="yes, <b>all</b> of it")
    assert refused.status == 409 and "asks something else by now" in refused.text
    assert "yes, &lt;b&gt;all&lt;/b&gt; of it" in refused.text, "what was written is not lost"
    assert task_of(site, number)["status"] == "PAUSED"
    reader.send(reader.get(f"/tasks/{number}/cancel").form("Cancel"))
    ended = reader.send(old, text="yes")
    assert ended.status == 409 and "needs no answer any more, it is CANCELLED" in ended.text


HOSTILE = "<script>alert(1)</script> \x1b[31mred\x1b]8;;https://evil.example\x07x \u202eevil \x00\x07"


def test_what_agents_and_plans_write_is_inert(site: Site, reader: Reader) -> None:
    """Whatever it is and wherever it stands."""
    text = HOSTILE.replace("\x00", "")
    body = {
        "plan": "p<b>",
        "source": None,
        "actor": "ada<i>",
        "tasks": [{"title": text, "key": "<k>", "description": text}],
    }
    site.post("/api/v1/plans", body)
    site.register()
    (job,) = site.started()
    printed = base64.b64encode(text.encode() + b"\n").decode()
    site.post("/worker/v1/log", site.of(job) | {"stream": "stdout", "offset": 0, "data": printed})
    site.report(job, "progress", {"percent": 5, "step": text})
    site.report(job, "ask", {"question": text})
    for path in ("/", "/tasks", "/inbox", "/plans", "/plans/p%3Cb%3E", f"/tasks/{job['taskId']}"):
        shown = reader.get(path)
        assert shown.status == 200, path
        for bad in ("<script>alert", "\x1b", "\u202e", "\x07", "<b>", "<k>", "<i>"):
            assert bad not in shown.text, (path, bad)


def test_a_form_of_another_site_does_nothing(site: Site, reader: Reader) -> None:
    number = site.enqueue("a")["a"]
    form = reader.get(f"/tasks/{number}").form("Pause")
    before = len(site.get("/api/v1/events"))
    wrong = {**form.fields, "csrf": "0" * 32}
    refused = [
        reader.post(form.action, wrong),
        reader.post(form.action, {}),
        reader.post(form.action, form.fields, Cookie=""),
        reader.post(
            form.action, form.fields, Cookie=f"muster_{reader.port}=another-secret-that-somebody-made"
        ),
        reader.post(form.action, form.fields, Origin="https://evil.example"),
        reader.post(form.action, form.fields, Origin="null"),
        reader.post(form.action, form.fields, **{"Sec-Fetch-Site": "cross-site"}),
        reader.post(form.action, form.fields, **{"Sec-Fetch-Site": "same-site"}),
        reader.post(form.action, form.fields, Host="evil.example"),
        reader.post(form.action, form.fields, Host=f"localhost.evil.example:{reader.port}"),
    ]
    assert [one.status for one in refused] == [403] * len(refused)
    assert len(site.get("/api/v1/events")) == before
    assert reader.post(form.action, form.fields).status == 303


def test_every_route_that_changes_something_wants_a_form_of_ours(site: Site, reader: Reader) -> None:
    site.enqueue("a")
    reader.get("/")
    for method, route in pages():
        if method == "POST" and (path := "/".join(route.parts)) != "/enter":
            target = re.sub(r"{task_id:id}", "7", path).replace("{plan}", "api").replace("{pool}", "x")
            target = target.replace("{action}", "pause")
            assert reader.post(target, {}).status == 403, path


def test_a_form_leads_back_to_a_page_of_ours_only(site: Site, reader: Reader) -> None:
    number = site.enqueue("a")["a"]
    for back in (
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/\r\nX: y",
    ):
        form = reader.get(f"/tasks/{number}")
        wanted = form.form("Pause" if "Pause" in form.labels else "Resume")
        sent = reader.post(wanted.action, {**wanted.fields, "back": back})
        assert sent.status == 303 and sent.headers["location"].startswith(f"/tasks/{number}?done="), back


def test_files_are_kept_for_ever_and_change_their_path(reader: Reader) -> None:
    for name, (media, data) in STATIC.items():
        shown = reader.ask("GET", f"/static/{VERSION}/{name}")
        assert shown.status == 200 and shown.text.encode() == data
        assert shown.headers["content-type"] == media and "immutable" in shown.headers["cache-control"]
        assert reader.ask("GET", f"/static/0123/{name}").status == 404
    assert sum(len(data) for name, (_, data) in STATIC.items() if name.endswith(".js")) < 100_000


def test_what_an_attempt_has_left_is_there_and_never_opened_as_a_page(site: Site, reader: Reader) -> None:
    site.enqueue("a")
    site.register()
    (job,) = site.started()
    site.report(job, "checkpoint", {"data": base64.b64encode(b"step 3 of 5").decode()})
    data = b"<script>alert(1)</script>"
    digest = hashlib.sha256(data).hexdigest()
    part = {"name": "report.html", "sha256": digest, "size": len(data), "offset": 0}
    sent = part | {"data": base64.b64encode(data).decode()}
    assert site.report(job, "artifact/content", sent)[0] == 200
    for name in ("report.html", "not kept"):
        site.report(job, "artifact", {"name": name, "location": name})
    shown = reader.get(f"/tasks/{job['taskId']}")
    assert "step 3 of 5" in shown.text and "not kept" in shown.text
    (link,) = re.findall(r'href="([^"]*/artifacts/[^"]*)"', shown.text)
    kept = reader.ask("GET", link)
    assert (kept.status, kept.text.encode()) == (200, data)
    assert kept.headers["content-type"] == "application/octet-stream"
    assert kept.headers["content-disposition"] == "attachment"
    assert "sandbox" in kept.headers["content-security-policy"]
    assert reader.get(link.replace("report.html", "another")).status == 404


def test_many_that_wait_are_counted_and_the_first_are_shown(
    site: Site, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "FIRST_NEEDS", 2)
    site.enqueue(*"abcd")
    site.register()
    for job in site.started():
        site.report(job, "ask", {"question": "Which?"})
    shown = reader.get("/")
    assert "(4)" in shown.text and "2 more tasks wait for you" in shown.text
    assert (
        shown.text.count('data-key="need-') == 2 and reader.get("/inbox").text.count('data-key="need-') == 4
    )


def test_a_large_plan_is_shown_a_part_at_a_time(
    site: Site, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_pages, "WHOLE_MAX", 3)
    monkeypatch.setattr(plan_pages, "PART", 3)
    tasks = [{"title": f"t{n}", "key": f"t{n}", "epic": f"Epic {n // 2}"} for n in range(5)]
    site.post("/api/v1/plans", {"plan": "big", "source": None, "actor": "ada", "tasks": tasks})
    first = reader.get("/plans/big")
    (more,) = re.findall(r'href="([^"]*after=[^"]*)"', first.text)
    second = reader.get(more)
    shown = [re.findall(r'data-key="task-(t\d)"', page.text) for page in (first, second)]
    assert shown == [["t0", "t1", "t2"], ["t3", "t4"]]
    assert re.findall(r"<strong>(.*?)</strong>", first.text) == ["Epic 0", "Epic 1"]
    assert re.findall(r"<strong>(.*?)</strong>", second.text) == ["Epic 1", "Epic 2"]
    assert 'rel="next"' not in second.text


def test_the_table_goes_on_where_a_page_ends(site: Site, reader: Reader) -> None:
    site.enqueue(*[f"t{n}" for n in range(5)])
    first = reader.get("/tasks?plan=api&limit=3")
    (more,) = re.findall(r'href="([^"]*cursor=[^"]*)"', first.text)
    second = reader.get(more.replace("&amp;", "&"))
    assert [len(re.findall(r'<tr data-key="\d+"', page.text)) for page in (first, second)] == [3, 2]


@pytest.mark.parametrize("more", ["utm_source=mail&fbclid=x", "status=", "plan=&done=&after=&view="])
def test_a_link_that_was_lengthened_on_its_way_opens_its_page(site: Site, reader: Reader, more: str) -> None:
    number = site.enqueue("a")["a"]
    plan = site.get(f"/api/v1/agent-tasks/{number}")["task"]["plan"]
    for path in ("/", "/tasks", f"/tasks/{number}", f"/tasks/{number}/cancel", f"/plans/{plan}", "/inbox"):
        assert reader.get(f"{path}?{more}").status == 200, path
    assert f"/tasks/{number}" in reader.get(f"/tasks?{more}").text, "an empty filter is none"
    assert reader.ask("GET", f"/api/v1/agent-tasks?{more}", Accept="application/json").status == 422


JUNK = (
    *("view=zzz", "after=abc", "after=-1", "after=1&after=2", "status=bogus", "priority=eleven", "limit=0"),
    *("cursor=abc", "metadata=size", "attempt=x", "graph=no", "level=loud", "first=-", f"q={'q' * 600}"),
)


@pytest.mark.parametrize("junk", JUNK)
def test_a_value_that_says_nothing_is_ignored_where_a_page_is_looked_at(
    site: Site, reader: Reader, junk: str
) -> None:
    number = site.enqueue("a")["a"]
    paths = ("/tasks", f"/tasks/{number}", "/plans", "/plans/api", "/inbox", "/audit")
    for path in (*paths, f"/tasks/{number}/review"):
        shown = reader.get(f"{path}?{junk}")
        assert shown.status == 200 and "Unprocessable" not in shown.text, path
    if not junk.startswith("after=1"):
        assert f"/tasks/{number}" in reader.get(f"/tasks?{junk}").text


def test_what_is_done_to_all_of_a_filter_is_read_to_the_letter(site: Site, reader: Reader) -> None:
    site.enqueue("a")
    for junk in ("status=bogus", "priority=eleven", "after=abc", "metadata=size"):
        assert reader.get(f"/bulk/cancel?{junk}").status == 422, junk
        assert reader.ask("GET", f"/api/v1/agent-tasks?{junk}", Accept="*/*").status == 422, junk


@pytest.mark.parametrize(
    ("word", "box"),
    [
        ("ready", "pending"),
        ("blocked", "pending"),
        ("waiting", "pending"),
        ("delayed", "delayed"),
        ("aborted", "delayed"),
        ("Paused", "paused"),
        ("done", "completed"),
    ],
)
def test_a_word_that_pages_print_is_a_filter(site: Site, reader: Reader, word: str, box: str) -> None:
    number = site.enqueue("a")["a"]
    shown = reader.get(f"/tasks?status={word}&status=bogus").text
    assert re.findall(r'value="(\w+)" checked', shown) == [box]
    assert (f'href="/tasks/{number}"' in shown) == (box == "pending")
