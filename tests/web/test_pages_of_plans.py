"""A plan's page: what waits for what, when each was at work, when all will be done."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from html import unescape
from http.client import HTTPConnection
from typing import Any

import pytest
from msgspec.structs import replace
from over_network import OPENLY, listening
from web_site import Site

from muster.engine.policy import Policy
from muster.engine.queries import Queries
from muster.model import forecast
from muster.model.outlines import TaskOutline
from muster.model.states import TaskStatus
from muster.model.why import state_of
from muster.runtimes.local import SystemClock
from muster.stores.stored_reads import StoredReads
from muster.web import reckonings
from muster.web.pages import forecasts, plan_drawing, plans
from page_reader import Reader
from patience import PATIENCE_S


@pytest.fixture
def reader(site: Site) -> Iterator[Reader]:
    """Of a server without login."""
    forecasts._missed.clear()
    with listening(site, OPENLY) as port:
        yield Reader(port)


def add(site: Site, plan: str, **after: tuple[str, ...]) -> None:
    tasks = [{"title": f"Do {key}", "key": key, "dependsOn": list(above)} for key, above in after.items()]
    site.post("/api/v1/plans", {"plan": plan, "source": None, "actor": "user:ann", "tasks": tasks})


def done(site: Site, *rounds: str) -> None:
    """All that is ready is done, as often as there are names for it."""
    for name in rounds:
        for job in site.started(name):
            site.post("/worker/v1/complete", site.of(job))


def test_a_plan_is_drawn_with_the_chain_that_decides(site: Site, reader: Reader) -> None:
    add(site, "shop", a=(), b=("a",), c=("a",), d=("b", "c"), alone=())
    site.register()
    shown = reader.get("/plans/shop").text
    assert shown.count('class="edge') == 4 and shown.count('class="edge critical"') == 2
    assert shown.count('<rect class="box') == 5
    chain = re.search(r"The chain that decides: (.*?)</p>", shown, re.DOTALL)
    assert chain is not None and re.findall(r">(\w)</a>", chain[1])[::2] == ["a", "d"]
    assert "after b, c" in shown, "the list says the same as the graph"
    assert "When it was at work" not in shown and "No forecast yet" in shown


def test_what_was_at_work_is_shown_with_its_time(site: Site, reader: Reader) -> None:
    add(site, "shop", a=(), b=("a",))
    site.register()
    done(site, "r1")
    shown = reader.get("/plans/shop").text
    assert "When it was at work" in shown and shown.count('data-key="bar-') == 1
    caption = re.search(r'data-live="gantt">\s*<p class="dim">(.*?)</p>', shown, re.DOTALL)
    assert caption is not None and len(re.findall(r">\d\d \w+ \d\d:\d\d:\d\d</time>", caption[1])) == 2


def test_what_is_at_work_takes_some_time_still(site: Site, reader: Reader) -> None:
    add(site, "shop", a=(), b=("a",), c=("b",), d=("c",), e=())
    site.register()
    first, asks = site.started("r1")
    assert site.report(asks, "ask", {"question": "Which one?"})[0] == 200
    site.post("/worker/v1/complete", site.of(first))
    done(site, "r2", "r3")
    (job,) = site.started("r4")
    for _ in range(1000):
        shown = reader.get("/plans/shop").text
        assert "Forecast: done" in shown and not re.search(r"(done <strong>in|between|and) 0s", shown)
        if "1 task is at work for longer than any took so far" in shown:
            break
    else:
        pytest.fail("it never took longer than the others")
    assert "may be far off. Not counted: 1 task that waits for a person." in " ".join(shown.split())
    assert job["key"] == "d"


def outline(number: int, **changes: Any) -> TaskOutline:
    plain: dict[str, Any] = dict.fromkeys(TaskOutline.__struct_fields__)
    texts = {"key": f"t{number}", "title": "", "epic": "", "feature": "", "error": "", "after": ()}
    texts |= {"half_done": False, "priority": 5, "sort_key": 0}
    return TaskOutline(**{**plain, **texts, "id": number, "status": TaskStatus.PENDING, **changes})


def test_a_task_that_waits_again_is_not_at_work() -> None:
    begun = {
        status: plan_drawing.timed_of(outline(1, status=status, started_at_ms=5), (), stands=False).begun_ms
        for status in (TaskStatus.PENDING, TaskStatus.RUNNING)
    }
    assert begun == {TaskStatus.PENDING: None, TaskStatus.RUNNING: 5}


def test_the_end_is_told_with_how_wrong_that_was_before(site: Site, reader: Reader) -> None:
    steps = {"a": (), **{key: (above,) for above, key in zip("abcdefg", "bcdefgh", strict=True)}}
    site.register()
    add(site, "past", **steps)
    done(site, *(f"past{number}" for number in range(8)))
    add(site, "now", **steps)
    done(site, *(f"now{number}" for number in range(4)))
    shown = reader.get("/plans/now").text
    assert "Forecast: done <strong>in " in shown and "4 tasks are left" in shown and "on 1 place" in shown
    assert re.search(r"the end of 1 past plan was missed by \d+ %", shown)
    over = reader.get("/plans/past").text
    assert "Forecast" not in over and "No forecast" not in over


def test_what_begins_later_is_told_to_end_later(site: Site, reader: Reader) -> None:
    add(site, "shop", **chain("a", "b", "c", "d"))
    site.register()
    done(site, "r1", "r2", "r3")
    tasks = [{"title": "t", "key": "late", "delayS": 64 * 86400}]
    site.post("/api/v1/plans", {"plan": "shop", "source": None, "actor": "user:ann", "tasks": tasks})
    shown = reader.get("/plans/shop").text
    assert "done <strong>in 64d" in shown
    assert "1 task is laid out no sooner than the time that it waits for." in shown


def test_places_of_a_limit_are_told(site: Site, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [{"title": "t", "key": f"t{at}", "limitKey": "gpu"} for at in range(12)]
    site.post("/api/v1/plans", {"plan": "shop", "source": None, "actor": "user:ann", "tasks": tasks})
    site.register()
    jobs = site.started("r1")
    for job in jobs:
        site.post("/worker/v1/complete", site.of(job))
    assert len(jobs) > 2
    shown = reader.get("/plans/shop").text
    assert "Forecast: done" in shown and "[limits]" not in shown, "the settings do not name it"
    policy = Policy(limits={"gpu": 1})
    told = Queries(site.backend.reads, SystemClock("boot-a"), policy)
    monkeypatch.setattr(site.backend.queries, "limits", told.limits)
    shown = reader.get("/plans/shop").text
    assert f"{12 - len(jobs)} tasks share the places of <code>[limits]</code>" in shown


def test_a_paused_plan_has_no_time_of_its_end(site: Site, reader: Reader) -> None:
    add(site, "shop", **chain("a", "b", "c", "d"))
    site.register()
    done(site, "r1", "r2", "r3")
    site.post("/api/v1/plans/shop/pause", {"actor": "user:ann"})
    forecast = part_of(reader.get("/plans/shop").text, "forecast")
    assert "If it went on now: done <strong>in " in forecast and "Forecast:" not in forecast
    assert "<time" not in forecast


def part_of(shown: str, name: str) -> str:
    found = re.search(f'<div data-live="{name}">(.*?)</div>', shown, re.DOTALL)
    assert found is not None
    return found[1]


def test_a_graph_of_many_tasks_is_drawn_by_their_headings(site: Site, reader: Reader) -> None:
    def keys(name: str) -> list[str]:
        return [f"{name}{number}" for number in range(170)]

    tasks = [{"title": key, "key": key, "epic": "Pages", "dependsOn": []} for key in keys("a")]
    tasks += [
        {"title": key, "key": key, "epic": "Pages", "feature": "Look", "dependsOn": [above]}
        for key, above in zip(keys("b"), keys("a"), strict=True)
    ]
    tasks.append({"title": "End", "key": "end", "dependsOn": keys("b")})
    site.post("/api/v1/plans", {"plan": "many", "source": None, "actor": "user:ann", "tasks": tasks})
    shown = reader.get("/plans/many").text
    boxes = re.findall(r'aria-label="([^"]+)"><title>', shown)
    assert boxes == [
        "170: Pages (170 ready)",
        "170: Pages &gt; Look (170 blocked)",
        "end: End (blocked)",
    ]
    assert shown.count('class="edge critical"') == 2 == shown.count('class="edge')
    assert "those of one heading that stand equally deep are one box" in shown and "after a169" in shown


@pytest.mark.parametrize("most", [1, 2, 3, 7])
def test_a_long_chain_is_drawn_in_as_many_boxes_as_there_may_be(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(plan_drawing, "DRAWN_MAX", most)
    parents = {number: [number - 1] if number else [] for number in range(10)}
    chart = plan_drawing.Chart(parents, {number: outline(number) for number in parents})
    drawn = plan_drawing.graph(chart, list(parents))
    assert drawn is not None and drawn.steps == -(-10 // most)
    assert drawn.collapsed and len(drawn.boxes) <= most
    assert len(drawn.edges) == len(drawn.boxes) - 1 and all(edge.critical for edge in drawn.edges)


def test_a_box_of_steps_in_a_row_looks_like_what_is_to_be_seen_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_drawing, "DRAWN_MAX", 3)
    parents = {number: [number - 1] if number else [] for number in range(12)}
    of = dict.fromkeys(range(6), TaskStatus.COMPLETED)
    of |= {6: TaskStatus.RUNNING, 9: TaskStatus.FAILED}
    tasks = {n: outline(n, status=of.get(n, TaskStatus.PENDING), unmet=1, epic="Pages") for n in parents}
    drawn = plan_drawing.graph(plan_drawing.Chart(parents, tasks), [])
    assert drawn is not None and drawn.steps == 4
    assert [(box.name, box.look) for box in drawn.boxes] == [
        ("4: t0 … t3", "completed"),
        ("4: t4 … t7", "running"),
        ("4: t8 … t11", "failed"),
    ]
    assert drawn.boxes[1].title == "4: t4 … t7 (2 completed, 1 running, 1 blocked)"


def test_what_one_box_stands_for_is_said(
    site: Site, reader: Reader, large: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_drawing, "DRAWN_MAX", 9)
    shown = reader.get(f"{large}?graph=yes").text
    assert "those of 2 steps in a row are one box" in shown and "of one heading" not in shown


def test_names_of_tasks_are_harmless_in_a_drawing(site: Site, reader: Reader) -> None:
    tasks = [
        {"title": "<script>\x1b[31m", "key": '"><img src=x>'},
        {"title": "t", "key": "b", "dependsOn": ['"><img src=x>']},
    ]
    site.post("/api/v1/plans", {"plan": "shop", "source": None, "actor": "user:ann", "tasks": tasks})
    shown = reader.get("/plans/shop").text
    assert "<img" not in shown and "<script>\x1b" not in shown and "\x1b" not in shown
    assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=", shown)


def chain(*keys: str) -> dict[str, tuple[str, ...]]:
    return {key: (above,) if above else () for key, above in zip(keys, ["", *keys], strict=False)}


@pytest.fixture
def large(site: Site, monkeypatch: pytest.MonkeyPatch) -> str:
    """A plan that is not shown whole: three of eighteen are done, one is at work."""
    monkeypatch.setattr(plans, "WHOLE_MAX", 5)
    monkeypatch.setattr(plans, "PART", 8)
    monkeypatch.setattr(forecasts, "PORTION", 4)
    monkeypatch.setattr(forecasts, "AT_ONCE_MAX", 5)
    add(site, "large", **chain(*(f"t{at:02}" for at in range(18))))
    site.register()
    done(site, "r1", "r2", "r3")
    site.started("r4")
    return "/plans/large"


@pytest.fixture
def charts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Plans whose tasks were read to reckon something of them."""
    asked: list[int] = []
    chart_of = forecasts.chart_of

    async def counted(web: Any, plan_id: int) -> Any:
        asked.append(plan_id)
        return await chart_of(web, plan_id)

    monkeypatch.setattr(forecasts, "chart_of", counted)
    return asked


def due_again(monkeypatch: pytest.MonkeyPatch, after_s: float) -> None:
    monkeypatch.setattr(reckonings, "LEAST_S", after_s)
    monkeypatch.setattr(reckonings, "SHARE", 0)


def test_a_large_plan_has_a_forecast_and_the_beginning_of_its_chain(reader: Reader, large: str) -> None:
    first = reader.get(large).text
    for shown in (first, reader.get(more_of(first)).text):
        assert "Forecast: done <strong>in " in shown and "15 tasks are left" in shown
        decides = re.search(r"The chain that decides: (.*?)</p>", shown, re.DOTALL)
        assert decides is not None and decides[1].endswith("and 3 more")
        assert re.findall(r">(t\d\d)</a>", decides[1]) == [f"t{at:02}" for at in range(3, 15)]
        assert "No graph" not in shown and '<svg class="graph"' not in shown
    assert first.count('data-key="bar-') == 4 and "of the tasks on this page" in first
    assert first.count('data-key="task-') == 8


@pytest.mark.parametrize("large", [False, True])
def test_what_took_long_once_does_not_decide_what_is_left(
    site: Site, reader: Reader, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """Also while too few are done for a forecast."""
    monkeypatch.setattr(plans, "WHOLE_MAX", 5 if large else 500)
    monkeypatch.setattr(forecast, "LEAST_DONE", 10)
    outlines = StoredReads.outlines

    async def slow(*asked: Any) -> list[TaskOutline]:
        found = await outlines(*asked)
        return [
            replace(one, started_at_ms=0) if one.key == "slow" and one.ended_at_ms else one for one in found
        ]

    monkeypatch.setattr(StoredReads, "outlines", slow)
    add(site, "left", slow=(), quick=(), quicker=(), **chain(*"abcdefgh"))
    site.register()
    done(site, "r1")
    shown = reader.get("/plans/left").text
    assert "No forecast yet" in shown
    decides = re.search(r"The chain that decides: (.*?)</p>", shown, re.DOTALL)
    done_too = "" if large else "a"
    assert decides is not None and re.findall(r">(\w+)</a>", decides[1]) == [*done_too, *"bcdefgh"]


def more_of(shown: str) -> str:
    (more,) = re.findall(r'rel="next" href="([^"]+)"', shown)
    return unescape(more)


def test_each_part_of_a_large_plan_says_which_it_is(reader: Reader, large: str) -> None:
    first = reader.get(large).text
    assert "Tasks 1 to 8 of 18" in first and "To the first ones" not in first
    second = reader.get(more_of(first)).text
    third = reader.get(more_of(second)).text
    assert "Tasks 9 to 16 of 18" in second and "Tasks 17 to 18 of 18" in third
    for shown in (second, third):
        assert f'href="{large}">To the first ones' in shown
    (after,) = re.findall(r"after=(\d+)", more_of(first))
    for said in ("", "&before=17", "&before=999"):
        assert "A later part of 18 tasks" in reader.get(f"{large}?after={after}{said}").text
    beyond = reader.get(f"{large}?after=9000000000000000&before=18").text
    assert "There are no more tasks behind these." in beyond and f'href="{large}">To the first ones' in beyond
    assert "It has no tasks" not in beyond and "Tasks 19" not in beyond


def test_past_plans_may_be_large_as_well(site: Site, reader: Reader, large: str) -> None:
    add(site, "past", **chain(*"abcdefgh"))
    done(site, *(f"past{number}" for number in range(8)))
    assert re.search(r"the end of 1 past plan was missed by \d+ %", reader.get(large).text)


def test_the_graph_of_a_large_plan_is_drawn_for_who_wants_it(reader: Reader, large: str) -> None:
    first = reader.get(large).text
    (link,) = re.findall(r'href="([^"]+)">Draw what waits for what', first)
    assert link == f"{large}?graph=yes"
    shown = reader.get(link).text
    assert shown.count('<rect class="box') == 18 and "Draw what" not in shown and "and 3 more" in shown
    (part,) = re.findall(r'href="([^"]+)">Draw what', reader.get(more_of(first)).text)
    assert unescape(part).startswith(f"{more_of(first)}&")
    assert reader.get(unescape(part)).text.count('<rect class="box') == 18
    second = reader.get(more_of(shown)).text
    assert second.count('<rect class="box') == 18, "who wants it has it on other parts as well"
    assert f'href="{large}?graph=yes">To the first ones' in second and more_of(second).endswith("&graph=yes")
    assert "Draw what" in reader.get(f"{large}?graph=no").text


def test_a_large_plan_is_reckoned_once_for_all_who_look(
    reader: Reader, large: str, charts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    due_again(monkeypatch, 10_000)
    for path in (large, f"{large}?after=9", large):
        assert "15 tasks are left" in reader.get(path).text
    assert len(charts) == 1
    due_again(monkeypatch, 0)
    reader.get(large)
    assert len(charts) == 2


def test_a_large_plan_that_has_settled_is_reckoned_again_once_something_happens_to_it(
    site: Site, reader: Reader, large: str, charts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    due_again(monkeypatch, 0)
    add(site, "over", **chain(*"abcdefg"))
    done(site, *(f"over{number}" for number in range(7)))
    for _ in range(2):
        assert "<span>settled</span>" in reader.get("/plans/over").text
    add(site, "elsewhere", a=())
    reader.get("/plans/over")
    assert len(charts) == 1
    add(site, "over", h=())
    reader.get("/plans/over")
    assert len(charts) == 2
    done(site, "overh")
    reader.get("/plans/over")
    monkeypatch.setattr(plans, "EVENTS_LOOKED_MAX", 2)
    add(site, "elsewhere", b=(), c=(), d=())
    before = len(charts)
    reader.get("/plans/over")
    assert len(charts) == before + 1, "too much has happened since to look through it"


@contextmanager
def said_by(reader: Reader, target: str) -> Iterator[Iterator[str]]:
    """What a stream says, as it comes."""
    with closing(HTTPConnection("127.0.0.1", reader.port, timeout=PATIENCE_S)) as connection:
        connection.request("GET", target, headers={"Host": reader.host, "Cookie": reader.cookie})
        answer = connection.getresponse()
        yield (json.loads(line[6:]) for line in answer if line.startswith(b"data: "))


def test_a_page_that_shows_what_was_kept_looks_again_when_that_is_due(
    site: Site, reader: Reader, large: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    due_again(monkeypatch, 10_000)
    reader.get(large)
    add(site, "elsewhere", a=())
    ((stream, seen),) = re.findall(r'data-stream="([^"]+)" data-seen="([^"]+)"', reader.get(large).text)
    with said_by(reader, stream.replace("&amp;", "&")) as said:
        assert next(said) == seen
        due_again(monkeypatch, 0)
        assert next(said) != seen
    fresh = reader.get(large).text
    assert f'data-seen="{seen}"' not in fresh


def test_who_stands_is_known_without_whole_views(site: Site, reader: Reader) -> None:
    """As the views say it, which small plans were always drawn by."""
    add(site, "mixed", a=(), b=("a",), c=("b",), d=(), e=(), f=("d", "e"), g=())
    tasks = [
        {"title": "t", "key": "lost", "agent": "nobody"},
        {"title": "t", "key": "after", "dependsOn": ["lost"]},
    ]
    site.post("/api/v1/plans", {"plan": "mixed", "source": None, "actor": "user:ann", "tasks": tasks})
    site.register()
    jobs = {job["key"]: job for job in site.started()}
    site.report(jobs["a"], "ask", {"question": "Which?"})
    site.post("/worker/v1/complete", site.of(jobs["d"]))
    failed = {"kind": "invalid", "message": "no"}
    site.post("/worker/v1/fail", site.of(jobs["e"]) | failed)
    views = {task["id"]: task for task in site.get("/api/v1/agent-tasks?plan=mixed")}
    plan_id = site.get("/api/v1/plans/mixed")["plan"]["id"]
    chart = asyncio.run_coroutine_threadsafe(forecasts.chart_of(site.backend, plan_id), site._loop).result(
        PATIENCE_S
    )
    assert set(chart.tasks) == set(views)
    assert {views[number]["key"] for number in chart.standing} == {"a", "e", "f", "lost"}
    for number, view in views.items():
        assert (number in chart.standing, state_of(chart.tasks[number])) == (
            view["needsPerson"],
            view["state"],
        )


def test_what_is_not_drawn_of_a_large_plan_is_said(
    site: Site, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((plans, "WHOLE_MAX"), (forecasts, "RECKONED_MAX")):
        monkeypatch.setattr(module, name, 3)
    monkeypatch.setattr(plans, "PART", 2)
    add(site, "large", **chain("a", "b", "c", "d"))
    add(site, "small", a=(), b=("a",))
    said = (
        "No forecast: it is reckoned",
        "No graph, and no chain that decides",
        "No times when it was at work",
    )
    large, small = reader.get("/plans/large").text, reader.get("/plans/small").text
    for words in said:
        assert words in large and words not in small
    assert "up to 3 tasks, and this one has 4." in large and "Draw what waits" not in large
    assert said[1] in reader.get("/plans/large?after=2").text, "on its other parts as well"
    site.register()
    done(site, "r1", "r2", "r3", "r4")
    settled = reader.get("/plans/large").text
    assert "<span>settled</span>" in settled and all(words in settled for words in said)


def test_where_there_is_no_git_a_merge_leads_back_to_the_plan(site: Site, reader: Reader) -> None:
    add(site, "shop", a=())
    shown = reader.get("/plans/shop/merge")
    assert shown.status == 200 and "<title>Merge: shop" in shown.text
    assert "There is nothing to merge: what tasks have made is in no git repository here" in shown.text
    assert 'class="button" href="/plans/shop">Back' in shown.text


def test_a_plan_that_is_over_is_not_offered_to_be_paused(site: Site, reader: Reader) -> None:
    add(site, "over", a=(), b=())
    assert {"Pause"} <= reader.get("/plans/over").labels
    site.post("/api/v1/plans/over/cancel", {"actor": "user:ann"})
    shown = reader.get("/plans/over")
    assert "Pause" not in shown.labels and "Cancel…" not in shown.text and "2 cancelled" in shown.text
    add(site, "held", a=())
    site.post("/api/v1/plans/held/pause", {"actor": "user:ann"})
    site.post("/api/v1/plans/held/cancel", {"actor": "user:ann"})
    assert "Resume" in reader.get("/plans/held").labels, "or what is added to it would never begin"


def test_a_card_begins_with_the_title_of_its_task(site: Site, reader: Reader) -> None:
    title, plan = "Move the invoices " * 20, "a-plan-of-a-long-name-" * 8
    task = {"title": title, "key": "card"}
    site.post("/api/v1/plans", {"plan": plan, "source": None, "tasks": [task], "actor": "user:ann"})
    site.register()
    (job,) = site.started()
    for state in ("running", "failed"):
        for path in ("/", "/inbox") if state == "failed" else ("/",):
            shown = reader.get(path).text
            begins, words, ref = (
                shown.find(one) for one in (f"> {state}<", "<strong>Move", f"{plan}/card</a>")
            )
            assert 0 < begins < words < ref, (state, path)
            assert shown.count("Move the invoices") <= 6 and "…</strong>" in shown
        if state == "running":
            site.post("/worker/v1/fail", site.of(job) | {"kind": "invalid", "message": "no"})
