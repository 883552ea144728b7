"""A plan's page: what waits for what, when each was at work, when all will be done."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from test_network import OPENLY, listening
from web_site import Site

from muster.web.pages import forecasts, plan_drawing
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


def test_a_large_plan_has_its_list_and_no_thicket(
    site: Site, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_drawing, "DRAWN_MAX", 2)
    add(site, "shop", a=(), b=("a",), c=("b",))
    shown = reader.get("/plans/shop").text
    assert "<svg" not in shown and "after b" in shown and "a graph is drawn of up to 300" in shown


def test_names_of_tasks_are_harmless_in_a_drawing(site: Site, reader: Reader) -> None:
    tasks = [
        {"title": "<script>\x1b[31m", "key": '"><img src=x>'},
        {"title": "t", "key": "b", "dependsOn": ['"><img src=x>']},
    ]
    site.post("/api/v1/plans", {"plan": "shop", "source": None, "actor": "user:ann", "tasks": tasks})
    shown = reader.get("/plans/shop").text
    assert "<img" not in shown and "<script>\x1b" not in shown and "\x1b" not in shown
    assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=", shown)
