"""The attributes that say who may do a task, when, and what it belongs to."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.cli.plan_file import Given, plan_body
from muster.config.project import Project
from muster.config.settings import AgentConfig, Config
from muster.model.commands import Spec
from muster.model.edits import PlanTask
from muster.model.errors import BadPlan
from muster.model.fields import ATTRIBUTES
from muster.plans.markdown import parse, tick


def read(attributes: str) -> PlanTask:
    task, _ = parse(f"# P\n\n- [ ] Do it {{{attributes}}}\n- [ ] Other {{#other}}\n", "plan.md").tasks
    return task


@pytest.fixture
def new_york() -> Iterator[None]:
    """A local time that is five hours behind in winter."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "America/New_York"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


EXAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "after": ("after=other", {"depends_on": ("other",)}),
    "agent": ("agent=claude", {"agent": "claude"}),
    "profile": ("profile=writer", {"profile": "writer"}),
    "model": ("model=openai/gpt-5:high", {"model": "openai/gpt-5:high"}),
    "system-prompt": ('system-prompt="Be brief."', {"system_prompt": "Be brief."}),
    "cap": ("cap=rust,go,rust", {"capabilities": ("rust", "go")}),
    "priority": ("priority=P0", {"priority": 10}),
    "sort": ("sort=-12", {"sort_key": -12}),
    "timeout": ("timeout=30m", {"timeout_s": 1800}),
    "target": ("target=prod", {"target": "prod"}),
    "estimated": ("estimated=20m", {"estimated_s": 1200}),
    "retries": ("retries=0", {"max_retries": 0}),
    "backoff": ("backoff=5m", {"retry_backoff_s": 300}),
    "check": ('check="make test"', {"check_command": "make test"}),
    "touches": ("touches=src/**", {"touches": "src/**"}),
    "review": ("review=person", {"review": "person"}),
    "changes": ("changes=none", {"changes": "none"}),
    "limit": ('limit="git push"', {"limit_key": "git push"}),
    "on-failed": ("on-failed=skip", {"on_failed": "skip"}),
    "delay": ("delay=90s", {"delay_s": 90}),
    "not-before": ("not-before=2027-01-31T18:00Z", {"not_before_ms": 1_801_418_400_000}),
    "expires": ("expires=2h", {"expires_s": 7200, "expires_at_ms": None}),
    "parent": ("parent=other", {"parent": "other"}),
    "tags": ("tags=x,y,x", {"tags": ("x", "y")}),
    "meta": ('meta="customer=a = b, team="', {"metadata": {"customer": "a = b", "team": ""}}),
}


def test_every_attribute_has_an_example() -> None:
    assert EXAMPLES.keys() == ATTRIBUTES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_attribute_means_what_it_says(name: str) -> None:
    written, expected = EXAMPLES[name]
    task, plain = read(f"#a {written}"), read("#a")
    assert {field: getattr(task, field) for field in expected} == expected
    others = set(PlanTask.__struct_fields__) - expected.keys()
    assert {field: getattr(task, field) for field in others} == {
        field: getattr(plain, field) for field in others
    }


def test_without_any() -> None:
    task = read("#a")
    assert (task.capabilities, task.profile, task.limit_key, task.on_failed) == ((), None, None, "block")
    assert (task.tags, task.metadata, task.sort_key, task.parent) == ((), {}, 0, None)
    assert (task.not_before_ms, task.delay_s, task.expires_at_ms, task.expires_s) == (None,) * 4


@pytest.mark.parametrize(
    ("value", "unix_s"),
    [
        ("2027-01-31", 1_801_371_600),
        ("2027-01-31T18:00", 1_801_436_400),
        ("2027-01-31T18:00:30.250Z", 1_801_418_430.25),
        ("2027-01-31T18:00+05:00", 1_801_400_400),
        ('"2027-07-31 18:00"', 1_817_071_200),
    ],
)
@pytest.mark.usefixtures("new_york")
def test_a_time_without_a_zone_is_local(value: str, unix_s: float) -> None:
    assert read(f"not-before={value}").not_before_ms == unix_s * 1000
    assert read(f"expires={value}").expires_at_ms == unix_s * 1000


@pytest.mark.parametrize(
    "wrong",
    [
        *("cap=", "cap=a,,b", "profile=", "limit=", "on-failed=explode", "on-failed=", "tags=,", "capa=x"),
        *("sort=", "sort=high", "sort=--1", "sort=1.5", "delay=0", "delay=soon", "delay=2027-01-31"),
        *("not-before=2h", "not-before=", "not-before=2027-02-30", "not-before=1969-01-01"),
        *("not-before=0001-01-01", "expires=0s", "expires=later", "parent=", "meta=", "meta=a", "meta==b"),
        *("meta=a=1,a=2", "meta=a=1,", f"meta={'k' * 201}=1"),
    ],
)
def test_mistakes_are_named(wrong: str) -> None:
    with pytest.raises(BadPlan, match=r"plan.md:3: .*" + wrong.partition("=")[0]):
        read(f"#a {wrong}")


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ("delay=1h not-before=2027-01-31", "keep one"),
        ("parent=othr", "parent=othr: no such task in this plan; did you mean 'other'?"),
        ("#a parent=a", "the task belongs to itself: a -> a"),
        ("expire=2h", "did you mean 'expires'?"),
        ("not_before=2027-01-31", "did you mean 'not-before'?"),
    ],
)
def test_mistakes_that_need_a_second_look(attributes: str, said: str) -> None:
    with pytest.raises(BadPlan) as refused:
        read(attributes)
    assert said in refused.value.message


def test_a_box_under_another_one_with_a_text_belongs_to_it_and_does_not_wait_for_it() -> None:
    text = "- [ ] A {#a}\n  - plain\n    - [ ] B {#b}\n      Text.\n      - [ ] C {#c}\n"
    text += "  - [ ] D {#d parent=c}\n- [ ] E {#e}\n"
    found = {task.key: (task.parent, task.depends_on) for task in parse(text, "plan.md").tasks}
    assert found == {"a": (None, ()), "b": ("a", ()), "c": ("b", ()), "d": ("c", ()), "e": (None, ())}


def test_tasks_that_belong_to_each_other_are_a_problem() -> None:
    with pytest.raises(BadPlan, match="these tasks belong to each other: a -> b -> a"):
        parse("- [ ] A {#a parent=b}\n  - [ ] B {#b}\n", "plan.md")


UNWRITTEN = {
    "title": "the text behind the box",
    "description": "the text below it",
    "key": "#id, or made from the title",
    "done": "the tick in the box",
    "epic": "the heading above",
    "feature": "the lower heading above",
    "isGroup": "boxes below it, and no text",
    "idempotencyKey": "a plan's tasks are known by their keys",
    "inputContext": "JSON does not fit in braces: muster task edit --input-context, or the API",
    "parentTaskId": "parent= names it by its key, which is known before its number",
}
"""Fields of a task that no attribute says, with what does."""


def test_every_field_of_a_task_has_an_attribute_or_a_reason(tmp_path: Path) -> None:
    """On the whole way from the file to the request that adds it."""
    config = Config(agents={"claude": AgentConfig("claude", ("claude",))}, default_agent="claude")

    def body(attributes: str) -> dict[str, Any]:
        text = f"- [ ] Do it {{#a {attributes}}}\n- [ ] Other {{#other}}\n"
        found: dict[str, Any] = plan_body(
            Given(parse(text, "plan.md"), tmp_path / "plan.md"), config, Project(tmp_path), list
        )["tasks"][0]
        return found

    plain = body("")
    written = [example for example, _ in EXAMPLES.values() if not example.startswith("agent=")]
    written += ["agent=claude cap=x", "expires=2027-01-31"]
    bodies = [body(text) for text in written]
    said = {name for told in bodies for name in told | plain if told.get(name) != plain.get(name)}
    assert said | UNWRITTEN.keys() == set(Spec.__struct_encode_fields__)
    assert not said & UNWRITTEN.keys()


@pytest.mark.parametrize(
    ("written", "title", "key", "after"),
    [
        ("Ship {after = ok}", "Ship", "ship", ("ok",)),
        ("Ship {after: ok}", "Ship", "ship", ("ok",)),
        ("Ship {#a after=ok}.", "Ship.", "a", ("ok",)),
        ("Ship {#a after=ok} (soon)", "Ship (soon)", "a", ("ok",)),
        ("Ship {#a after=ok} with all of it", "Ship with all of it", "a", ("ok",)),
        ("{after=ok} Ship", "Ship", "ship", ("ok",)),
        ("Ship {#a} {after=ok}", "Ship", "a", ("ok",)),
        ("Ship {:after=ok}", "Ship", "ship", ("ok",)),
        ("Ship {depends: ok}", "Ship", "ship", ("ok",)),
        ("Ship {#a after=ok", "Ship", "a", ("ok",)),
    ],
)
def test_what_is_clearly_meant_as_attributes_is_read_and_told(
    written: str, title: str, key: str, after: tuple[str, ...]
) -> None:
    text = f"# P\n\n- [ ] OK {{#ok}}\n- [ ] {written}\n"
    document = parse(text, "plan.md")
    task = document.tasks[1]
    assert (task.title, task.key, task.depends_on) == (title, key, after)
    (told,) = document.doubts
    assert told.startswith(f"plan.md:4:{7 + written.index('{')}: ") and " is read" in told


@pytest.mark.parametrize(
    ("title", "meant"),
    [
        ("Ship {limit: 10}", "{limit=10}"),
        ("Ship after=ok", "{after=ok}"),
        ("Ship (after=ok)", "{after=ok}"),
        ("Ship after=ok}", "{after=ok}"),
    ],
)
def test_what_may_be_meant_as_attributes_is_text_and_told(title: str, meant: str) -> None:
    text = f"# P\n\n- [ ] OK {{#ok}}\n- [ ] {title}\n"
    document = parse(text, "plan.md")
    assert document.tasks[1].title == title
    (told,) = document.doubts
    assert told.startswith("plan.md:4:12: ") and f"write {meant}" in told
    assert tick(text.encode(), ["ok"])[1] == {"ok"}


@pytest.mark.parametrize(
    "title",
    [
        "Support {#if} blocks",
        "Support {#each}",
        "Close {#each items as item}",
        "Set {x=1}",
        "Set {colour=red}",
        "Use ${VAR}",
        "Return {status: 200}",
        "Call it with {limit: 10} first",
        "Return {id: 1, limit: 10}",
        "Write `{after: ok}`",
        "Write \\{after: ok}",
        "Fill ${after: ok} and {{ after: ok }} in",
        'Use f"{name=}" in logs',
        "Look after=ok in the docs",
    ],
)
def test_other_braces_are_the_titles(title: str) -> None:
    document = parse(f"- [ ] {title}\n", "plan.md")
    assert document.tasks[0].title == title and document.doubts == ()
