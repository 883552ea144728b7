"""What a task's function may be annotated with, and what its result is then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import muster
from muster.model.errors import BadInput
from patience import PATIENCE_S

if TYPE_CHECKING:
    from decimal import Decimal

    from muster import TaskContext


class Own:
    pass


@dataclass
class Holder:
    owns: list[Own]


@dataclass
class Tree:
    below: list[Tree]


@pytest.mark.parametrize(
    ("kind", "called"),
    [
        (complex, "complex"),
        (Callable[[int], int], "Callable"),
        (Own, "Own"),
        (dict[str, Own | None], "Own"),
        (Holder, "Own"),
        (Iterator[int], "Iterator"),
        (Path, "Path"),
    ],
)
def test_what_no_call_could_be_given_is_refused_where_the_task_is_made(
    app: muster.App, kind: Any, called: str
) -> None:
    def takes(given: int, *more: Any) -> None: ...

    def returns() -> Any: ...

    takes.__annotations__["more"] = kind
    with pytest.raises(BadInput, match=f"parameter more of task takes is a {called}, which nothing"):
        app.task(takes)
    returns.__annotations__["return"] = kind
    with pytest.raises(BadInput, match=f"the result of task returns is a {called}, which nothing"):
        app.task(returns)


def test_an_object_is_anything(app: muster.App) -> None:
    @app.task
    def same(first: object, rest: list[object], tree: Tree) -> object:
        return [first, *rest, len(tree.below)]

    with app.running():
        assert same.enqueue({"a": 1}, [2, None], Tree([Tree([])])).result(PATIENCE_S) == [
            {"a": 1},
            2,
            None,
            1,
        ]


def test_a_name_that_nobody_knows_is_refused_when_the_app_begins(app: muster.App) -> None:
    @app.task
    def pay(ctx: TaskContext, amount: Decimal, times: int = 1) -> None:
        ctx.say(f"{amount} {times}")

    with (
        pytest.raises(BadInput, match="parameter amount of task pay is annotated as 'Decimal'"),
        app.running(),
    ):
        pass


def test_a_name_that_is_known_later_counts(app: muster.App) -> None:
    scope: dict[str, Any] = {"app": app}
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    exec(f"{head}@app.task\ndef half(of: Late) -> Late:\n    return Late(of.n // 2)\n", scope)
    exec(f"{head}@dataclass\nclass Late:\n    n: int\n", scope)
    with app.running():
        assert scope["half"].enqueue(scope["Late"](8)).result(PATIENCE_S) == scope["Late"](4)


def test_a_result_of_another_type_is_told_and_kept(app: muster.App) -> None:
    def count() -> Any:
        return "many"

    count.__annotations__["return"] = int
    counted = app.task(count)
    with app.running():
        handle = counted.enqueue()
        with pytest.raises(
            BadInput, match=r"the result of task reports/count-.* is not what its function says"
        ):
            handle.result(PATIENCE_S)
        assert handle.detail().result == '"many"'
