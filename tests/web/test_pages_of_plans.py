"""A plan's page: what waits for what, when each was at work, when all will be done."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from over_network import OPENLY, listening
from web_site import Site

from muster.web.pages import forecasts, plan_drawing
from muster.web.pages.plans import WHOLE_MAX
from page_reader import Reader


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


def test_what_is_at_work_takes_some_time_still(site: Site, reader: Reader) -> None:
    add(site, "shop", a=(), b=("a",), c=("b",), d=("c",))
    site.register()
    done(site, "r1", "r2", "r3")
    (job,) = site.started("r4")
    for _ in range(1000):
        shown = reader.get("/plans/shop").text
        assert "Forecast: done" in shown and not re.search(r"(done <strong>in|between|and) 0s", shown)
        if "1 task is at work for longer than any took so far" in shown:
            break
    else:
        pytest.fail("it never took longer than the others")
    assert job["key"] == "d"


def test_a_task_that_waits_again_is_not_at_work() -> None:
    task = {"startedAtMs": 5, "endedAtMs": None, "needsPerson": False, "isGroup": False}
    begun = {
        status: plan_drawing.timed_of({**task, "status": status}, ()).begun_ms
        for status in ("PENDING", "RUNNING")
    }
    assert begun == {"PENDING": None, "RUNNING": 5}


def test_the_end_is_told_with_how_wrong_that_was_before(site: Site, reader: Reader) -> None:
    chain = {"a": (), **{key: (above,) for above, key in zip("abcdefg", "bcdefgh", strict=True)}}
    site.register()
    add(site, "past", **chain)
    done(site, *(f"past{number}" for number in range(8)))
    add(site, "now", **chain)
    done(site, *(f"now{number}" for number in range(4)))
    shown = reader.get("/plans/now").text
    assert "Forecast: done <strong>in " in shown and "4 tasks are left" in shown and "on 1 place" in shown
    assert re.search(r"the end of 1 past plan was missed by \d+ %", shown)
    over = reader.get("/plans/past").text
    assert "Forecast" not in over and "No forecast" not in over


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
        "170 tasks of Pages: 170 ready",
        "170 tasks of Pages &gt; Look: 170 blocked",
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
    chart = plan_drawing.Chart(parents, {number: f"t{number}" for number in parents}, {})
    drawn = plan_drawing.graph(chart, list(parents))
    assert drawn is not None and drawn.collapsed and len(drawn.boxes) <= most
    assert len(drawn.edges) == len(drawn.boxes) - 1 and all(edge.critical for edge in drawn.edges)


def test_names_of_tasks_are_harmless_in_a_drawing(site: Site, reader: Reader) -> None:
    tasks = [
        {"title": "<script>\x1b[31m", "key": '"><img src=x>'},
        {"title": "t", "key": "b", "dependsOn": ['"><img src=x>']},
    ]
    site.post("/api/v1/plans", {"plan": "shop", "source": None, "actor": "user:ann", "tasks": tasks})
    shown = reader.get("/plans/shop").text
    assert "<img" not in shown and "<script>\x1b" not in shown and "\x1b" not in shown
    assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=", shown)


def test_what_is_not_drawn_of_a_large_plan_is_said(site: Site, reader: Reader) -> None:
    numbers = range(WHOLE_MAX + 1)
    add(site, "large", **{f"t{at}": (f"t{at - 1}",) if at else () for at in numbers})
    add(site, "small", a=(), b=("a",))
    said = (
        "No forecast: it is reckoned",
        "No graph, and no chain that decides",
        "No times when it was at work",
    )
    large, small = reader.get("/plans/large").text, reader.get("/plans/small").text
    for words in said:
        assert words in large and words not in small
    assert f"up to {WHOLE_MAX} tasks, and this one has {WHOLE_MAX + 1}." in large
    assert said[1] in reader.get("/plans/large?after=101").text, "on its other parts as well"


def test_where_there_is_no_git_a_merge_leads_back_to_the_plan(site: Site, reader: Reader) -> None:
    add(site, "shop", a=())
    shown = reader.get("/plans/shop/merge")
    assert shown.status == 200 and "<title>Merge: shop" in shown.text
    assert "There is nothing to merge: what tasks have made is in no git repository here" in shown.text
    assert 'class="button" href="/plans/shop">Back' in shown.text
