"""The attributes that say who may do a task, and when."""

from __future__ import annotations

import pytest

from muster.model.errors import BadPlan
from muster.model.plan import PlanTask
from muster.plans.markdown import parse


def read(attributes: str) -> PlanTask:
    (task,) = parse(f"# P\n\n- [ ] Do it {{{attributes}}}\n", "plan.md").tasks
    return task


def test_wishes_of_a_task() -> None:
    task = read('#a cap=rust,go profile=writer limit="git push" on-failed=skip tags=x,y,x')
    assert (task.capabilities, task.profile, task.limit_key) == (("rust", "go"), "writer", "git push")
    assert (task.on_failed, task.tags) == ("skip", ("x", "y"))


def test_without_any() -> None:
    task = read("#a")
    assert (task.capabilities, task.profile, task.limit_key, task.on_failed, task.tags) == (
        (),
        None,
        None,
        "block",
        (),
    )


@pytest.mark.parametrize(
    "wrong", ["cap=", "cap=a,,b", "profile=", "limit=", "on-failed=explode", "on-failed=", "tags=,", "capa=x"]
)
def test_mistakes_are_named(wrong: str) -> None:
    with pytest.raises(BadPlan, match=r"plan.md:3: .*" + wrong.partition("=")[0]):
        read(f"#a {wrong}")
