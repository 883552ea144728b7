"""What an address of the table asks for is kept by all that leads on from there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape, unescape
from urllib.parse import urlencode

import pytest
from over_network import OPENLY, listening
from web_site import Site

from muster.web.pages import tasks
from muster.web.pages.tasks import ROWS, ROWS_MAX, TAGS_ASKED
from page_reader import Reader


@pytest.fixture
def reader(site: Site) -> Iterator[Reader]:
    """Of a server without login."""
    with listening(site, OPENLY) as port:
        yield Reader(port)


@pytest.fixture
def numbers(site: Site) -> dict[str, int]:
    """t1 to t10 of two plans, each of that priority; odd ones are news, every third is late as well."""
    for plan in ("api", "web"):
        tags = {n: ["news"] * (n % 2) + ["late"] * (not n % 3) for n in range(1, 11)}
        tasks = [{"title": f"t{n}", "key": f"t{n}", "priority": n, "tags": tags[n]} for n in tags]
        site.post("/api/v1/plans", {"plan": plan, "source": None, "tasks": tasks, "actor": "ada"})
    return {f"{task['plan']}/{task['key']}": task["id"] for task in site.get("/api/v1/agent-tasks")}


def link(text: str, label: str) -> str:
    """Where it leads; "" where there is none."""
    found = re.search(rf'href="([^"]+)"[^>]*>{re.escape(label)}', text)
    return unescape(found[1]) if found else ""


def rows(text: str) -> list[str]:
    return re.findall(r'<th scope="row"[^>]*><a href="[^"]+">([^<]+)', text)


def test_delayed_is_what_rows_and_commands_call_so(site: Site, reader: Reader) -> None:
    later = {"title": "later", "key": "later", "notBeforeMs": 9_000_000_000_000}
    tasks = [later, {"title": "now", "key": "now"}, {"title": "x", "key": "x", "dependsOn": ["now"]}]
    site.post("/api/v1/plans", {"plan": "api", "source": None, "tasks": tasks, "actor": "ada"})
    shown = reader.get("/tasks?status=delayed").text
    assert rows(shown) == ["api/later"] and "--status delayed" in shown
    assert [one["key"] for one in site.get("/api/v1/agent-tasks?status=delayed")] == ["later"]
    bulk = reader.get(link(shown, "Cancel…")).text
    assert "Cancel: 1 task" in bulk
    assert rows(reader.get(link(bulk, "Back")).text) == ["api/later"]
    assert rows(reader.get("/tasks?status=delayed&status=pending").text) == ["api/later", "api/now", "api/x"]
    board = reader.get("/tasks?status=delayed&view=board").text
    assert "api/later" in board and "api/now" not in board


@pytest.mark.parametrize(
    "asked",
    [
        {"plan": "api", "tag": "news"},
        {"tag": ["news", "late"]},
        {"id": "t2"},
        {"priority": 9},
        {"priority>": 9},
        {"plan": "web", "priority<": 2},
    ],
)
def test_actions_and_other_states_are_of_the_same_tasks(
    asked: dict[str, object], reader: Reader, numbers: dict[str, int]
) -> None:
    asked = {name: numbers["api/t2"] if value == "t2" else value for name, value in asked.items()}
    shown = reader.get(f"/tasks?{urlencode(asked, doseq=True)}").text
    found = rows(shown)
    assert 0 < len(found) < 10
    bulk = reader.get(link(shown, "Cancel…")).text
    assert f"Cancel: {len(found)} task" in bulk
    assert rows(reader.get(link(bulk, "Back")).text) == found
    assert rows(reader.get(link(shown, "Without what has ended")).text) == found
    fields = re.findall(r'<input[^>]* name="([^"]+)" value="([^"]*)"', shown.partition("</form>")[0])
    given = [(unescape(name), unescape(value)) for name, value in fields if value and name != "status"]
    plan = [("plan", str(asked["plan"]))] if "plan" in asked else []
    assert rows(reader.get(f"/tasks?{urlencode([*given, *plan])}").text) == found


def test_what_has_no_box_of_its_own_is_named_and_can_be_left_out(
    reader: Reader, numbers: dict[str, int]
) -> None:
    shown = reader.get("/tasks?priority%3E=9&plan=api").text
    assert "<code>priority&gt;=9</code>" in shown and len(rows(shown)) == 2
    assert len(rows(reader.get(link(shown, "Not only these")).text)) == 10
    assert "Of these only" not in reader.get("/tasks?plan=api&tag=news&limit=100").text


def test_there_is_more_only_where_there_is(site: Site, reader: Reader) -> None:
    site.enqueue(*(f"t{n:02}" for n in range(ROWS)))
    assert link(reader.get("/tasks").text, "More") == link(reader.get("/tasks").text, "500 at") == ""
    site.enqueue("last")
    shown = reader.get("/tasks?plan=api").text
    assert len(rows(shown)) == ROWS
    assert len(rows(reader.get(link(shown, "500 at a time")).text)) == ROWS + 1
    second = reader.get(link(shown, "More")).text
    assert rows(second) == ["api/last"]
    assert len(rows(reader.get(link(second, "To the first ones")).text)) == ROWS


def test_so_many_at_a_time_is_kept(reader: Reader, numbers: dict[str, int]) -> None:
    shown = reader.get("/tasks?limit=4&plan=api").text
    second = reader.get(link(shown, "More")).text
    assert rows(second) == ["api/t5", "api/t6", "api/t7", "api/t8"]
    more = link(second, "500 at a time")
    assert rows(reader.get(more).text)[0] == "api/t5"
    behind = reader.get(f"/tasks?limit=4&plan=api&after={numbers['api/t4']}").text
    assert rows(reader.get(link(behind, "500 at a time")).text)[0] == "api/t5"
    assert len(rows(reader.get(link(second, "Without what has ended")).text)) == 4
    assert len(rows(reader.get(link(reader.get(link(second, "Cancel…")).text, "Back")).text)) == 4
    assert '<input type="hidden" name="limit" value="4">' in second


def test_more_rows_than_are_shown_are_as_many_as_are(reader: Reader, numbers: dict[str, int]) -> None:
    assert f"limit={ROWS_MAX}" in link(reader.get("/tasks?limit=100000").text, "Cancel…")


def test_states_with_commas_between_them_are_what_the_command_takes(
    site: Site, reader: Reader, numbers: dict[str, int]
) -> None:
    for number in (numbers["api/t1"], numbers["api/t2"]):
        site.post(f"/api/v1/agent-tasks/{number}/cancel", {"actor": "user:ann"})
    site.post(f"/api/v1/agent-tasks/{numbers['web/t3']}/pause", {"actor": "user:ann"})
    wanted = ["api/t1", "api/t2", "web/t3"]
    for said in ("paused,cancelled", "paused,CANCELLED,"):
        shown = reader.get(f"/tasks?status={said}").text
        assert rows(shown) == wanted and "Not understood" not in shown, said
        assert set(re.findall(r'value="(\w+)" checked', shown)) == {"paused", "cancelled"}
        found = site.get(f"/api/v1/agent-tasks?status={said}")
        assert [f"{task['plan']}/{task['key']}" for task in found] == wanted
    bulk = reader.get(link(shown, "Cancel…")).text
    assert "Cancel: 1 task" in bulk
    assert reader.get("/bulk/cancel?status=paused,cancelled").text.count('<a href="/tasks/') == 1


@pytest.mark.parametrize(
    "junk",
    (
        *("status=fialed", "plam=api", "tga=news", "limit=abc", "id=abc", "priority=<img>", "metadata=a"),
        *("utm_source=mail", "view=cube", "cursor=zzz"),
    ),
)
def test_what_is_not_understood_is_named_and_nothing_is_offered_for_all(
    reader: Reader, numbers: dict[str, int], junk: str
) -> None:
    name, _, value = junk.partition("=")
    asked = urlencode([("plan", "api"), (name, value)])
    shown = reader.get(f"/tasks?{asked}").text
    assert f"<code>{escape(junk)}</code>" in shown and "/bulk/" not in shown
    assert len(rows(shown)) == 10
    without = reader.get(link(shown, "Leave it out of the address")).text
    assert "Not understood" not in without and len(rows(without)) == 10
    assert "Cancel: 10 tasks" in reader.get(link(without, "Cancel…")).text
    assert reader.get(f"/bulk/cancel?{asked}").status == 422, "also who opens that page at once is told"


def test_of_several_values_those_that_are_not_understood_are_named(
    reader: Reader, numbers: dict[str, int]
) -> None:
    first, second = numbers["api/t1"], numbers["api/t2"]
    asked = f"status=pending,zzz&metadata=a=1&metadata=a=2&limit=5&limit=6&id={first}&id={second}&status="
    shown = reader.get(f"/tasks?{asked}").text
    named = re.findall(r"<code>([^<]*)</code>", shown.partition("Not understood")[2].partition("</p>")[0])
    assert named == ["metadata=a=2", "limit=6", "status=zzz"]
    assert 'value="pending" checked' in shown and 'name="limit" value="5"' in shown
    many = reader.get(f"/tasks?{'&'.join(f'x{n}=1' for n in range(30))}").text
    assert "and 10 more" in many


def test_a_plan_or_a_tag_that_is_not_there_is_said_and_kept(reader: Reader, numbers: dict[str, int]) -> None:
    shown = reader.get("/tasks?plan=nope<b>&tag=never&tag=news").text
    assert "There is no plan <code>nope&lt;b&gt;</code>" in shown
    assert "No task has the tag <code>never</code>" in shown and "the tag <code>news" not in shown
    assert re.findall(r'<option selected value="([^"]*)">', shown) == ["nope&lt;b&gt;"], "Show keeps it"
    assert rows(shown) == []
    board = reader.get("/tasks?view=board&plan=nope").text
    assert "There is no plan <code>nope</code>" in board
    there = reader.get("/tasks?plan=api&tag=news").text
    assert "There is no plan" not in there and "No task has the tag" not in there
    assert len(re.findall(r"<option selected", there)) == 1


def test_tags_are_looked_for_only_where_nothing_is_found_and_not_without_end(
    reader: Reader, numbers: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def is_borne(_: object, tag: str) -> bool:
        asked.append(tag)
        return False

    monkeypatch.setattr(tasks, "_is_borne", is_borne)
    for view in ("", "&view=board"):
        assert "No task has" not in reader.get(f"/tasks?tag=news&tag=late{view}").text and asked == []
    shown = reader.get(f"/tasks?{'&'.join(f'tag=never{n}' for n in range(100))}").text
    assert len(asked) == TAGS_ASKED == shown.count("No task has the tag")


def test_a_name_that_there_is_not_leads_to_the_tasks_and_is_said(
    reader: Reader, numbers: dict[str, int]
) -> None:
    for asked in ("Growing <b>", "api/t99", "a&b=c", "nope#3"):
        shown = reader.get(f"/find?{urlencode({'q': asked})}")
        assert shown.status == 200 and shown.path.startswith("/tasks?missed="), asked
        name = asked.partition("#")[0]
        assert f"Not found: there is no task {name!r}" in unescape(shown.text) and "<b>" not in shown.text
        assert "No title has it either" in shown.text
        assert len(rows(shown.text)) == 20
        assert "Not understood" not in shown.text and "missed" not in link(shown.text, "Cancel…")
    for much in (499, 500, 501, 3000):
        shown = reader.get(f"/find?q={'x' * much}")
        assert shown.status == 200 and "Not found: there is no task" in unescape(shown.text), much
        assert "Not understood" not in shown.text and link(shown.text, "Cancel…")
    assert reader.get("/find?q=").path == "/tasks"
    assert reader.get("/find?q=api").path == "/plans/api"
    number = numbers["web/t7"]
    assert reader.get("/find?q=web/t7").path == f"/tasks/{number}"
    assert "Not found" not in reader.get("/tasks?missed=web/t7").text, "an address alone says nothing"
    assert "Not found" not in reader.get("/tasks?missed=t7").text, "that may be one of two"


@pytest.fixture
def titled(site: Site) -> dict[str, int]:
    titles = {"one": "Fix the login <form>", "two": "Test the LOGIN form", "three": "100% of the docs"}
    tasks = [{"title": title, "key": key} for key, title in titles.items()]
    site.post("/api/v1/plans", {"plan": "web", "source": None, "tasks": tasks, "actor": "ada"})
    return {task["key"]: task["id"] for task in site.get("/api/v1/agent-tasks")}


def test_a_part_of_a_title_leads_to_the_tasks_that_have_it(reader: Reader, titled: dict[str, int]) -> None:
    assert reader.get(f"/find?{urlencode({'q': '100% of'})}").path == f"/tasks/{titled['three']}"
    several = reader.get("/find?q=the+login")
    assert several.path == "/tasks?text=the%20login"
    assert rows(several.text) == ["web/one", "web/two"] and "Not found" not in several.text
    assert "Not found" not in reader.get("/tasks?missed=the+login").text, "an address alone says nothing"
    assert "Not found" in reader.get(f"/find?q={'x' * 300}").text, "longer than what is looked for"


@pytest.mark.parametrize("view", ["", "&view=board"])
def test_tasks_are_filtered_by_a_text_which_all_that_leads_on_keeps(
    reader: Reader, titled: dict[str, int], view: str
) -> None:
    shown = reader.get(f"/tasks?text=login+%3Cform&status=pending{view}").text
    assert "web/one" in shown and "web/two" not in shown
    field = re.search(r"<label>Title or name <input ([^>]+)>", shown)
    assert field and 'value="login &lt;form"' in field[1] and 'name="text"' in field[1]
    assert 'type="hidden" name="text"' not in shown, "it is asked for once"
    assert "text=login+%3Cform" in link(shown, "All, also what has ended")
    if not view:
        assert "--text &#39;login &lt;form&#39; --status pending" in shown
    too_long = reader.get(f"/tasks?text={'x' * 201}{view}").text
    assert "Not understood, and left out: <code>text=" in too_long


def test_what_is_done_with_all_of_these_is_done_with_what_the_text_finds(
    site: Site, reader: Reader, titled: dict[str, int]
) -> None:
    shown = reader.get("/tasks?text=login").text
    bulk = reader.get(link(shown, "Cancel…"))
    assert "Cancel: 2 tasks" in bulk.text and "web/three" not in bulk.text
    assert rows(reader.get(link(bulk.text, "Back")).text) == ["web/one", "web/two"]


def test_a_long_list_of_a_text_goes_on_with_it(reader: Reader, numbers: dict[str, int]) -> None:
    first = reader.get("/tasks?text=API/&limit=4").text
    assert rows(first) == ["api/t1", "api/t2", "api/t3", "api/t4"]
    assert rows(reader.get(link(first, "More")).text) == ["api/t5", "api/t6", "api/t7", "api/t8"]
