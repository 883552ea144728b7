"""What an app is given and cannot be is refused in words, before anything is begun."""

from __future__ import annotations

from typing import Any

import pytest

import muster
from muster.model.errors import BadInput


def test_what_is_no_call_is_refused_with_what_was_meant(app: muster.App):
    @app.task
    def greet(name: str = "ada") -> str:
        return name

    wrong: tuple[Any, ...] = ([greet], [greet.call("bob"), greet], greet, greet.call("bob"))
    for given in wrong:
        with pytest.raises(BadInput, match="takes a list of calls") as refused:
            app.enqueue(given)
        assert refused.value.hint == "write [greet.call(...)]"
    for given in (["greet"], (greet.call(name) for name in "ab"), 7):
        with pytest.raises(BadInput, match="takes a list of calls"):
            app.enqueue(given)
    with muster.Client() as client:
        assert not client.tasks()


@pytest.mark.parametrize("stop_s", [-1, "a", None, float("nan"), float("inf")])
def test_what_is_no_time_to_stop_is_refused_before_it_runs(app: muster.App, stop_s: Any):
    @app.task
    def noop() -> None: ...

    with pytest.raises(BadInput, match=r"stop_s: .*nothing was begun"), app.running(stop_s=stop_s):
        raise AssertionError
