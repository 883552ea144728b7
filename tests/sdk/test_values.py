"""What goes into a task of an app and comes out of it: as JSON, and as what was annotated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

import muster
from muster.model.errors import BadInput
from muster.sdk.values import decode, encode


@dataclass
class Reading:
    at: float | None
    more: dict[str, Any]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({1: "a", 22: "b"}, dict[int, str]),
        ({1.5: {7: [None, 2.0]}}, dict[float, dict[int, list[float | None]]]),
        ({UUID(int=5): True}, dict[UUID, bool]),
        (Reading(None, {"null": "null"}), Reading),
        ((1, {2, 3}), tuple[int, set[int]]),
        (2**70, int),
        (b"\x00\xff", bytes),
    ],
)
def test_what_was_annotated_comes_back(value: object, kind: Any) -> None:
    assert decode(encode(value, "it"), kind) == value


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks_is_refused_and_not_left_out(number: float) -> None:
    for value in (
        number,
        [None, number],
        {"a": {"b": (number,)}},
        Reading(number, {}),
        Reading(1.0, {"x": number}),
    ):
        with pytest.raises(
            BadInput, match="the result cannot be written as JSON: it has no NaN and no infinity"
        ):
            encode(value, "the result")


def test_keys_may_be_numbers_in_arguments_results_and_steps(app: muster.App) -> None:
    @app.task
    def double(ctx: muster.TaskContext, scores: dict[int, float]) -> dict[int, float]:
        def work() -> dict[int, float]:
            return {number: 2 * score for number, score in scores.items()}

        return ctx.step("work", work)

    @app.task(retries=0)
    def mean(numbers: list[float]) -> float:
        return sum(numbers) / len(numbers) if numbers else math.nan

    with muster.Client() as client, pytest.raises(BadInput, match="NaN"):
        client.request(
            "POST", "/api/v1/agent-tasks", {"title": "t", "actor": "ada", "metadata": {"a": math.nan}}
        )
    with app.running():
        assert double.enqueue({1: 1.5, 10: 2.5}).result("1m") == {1: 3.0, 10: 5.0}
        with pytest.raises(BadInput, match="NaN"):
            mean.enqueue([math.inf])
        with pytest.raises(muster.TaskFailed, match="NaN"):
            mean.enqueue([]).result("1m")
