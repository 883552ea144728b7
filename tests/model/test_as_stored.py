"""What is stored can be read back, whatever limits what comes in has."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model import commands as c
from muster.model.agents import stale_after_s
from muster.model.as_stored import json_reader
from muster.model.kinds import SECONDS_MAX
from muster.model.usage import Usage, total, usage_json, usage_of

LONG = "x" * 100_000
BEYOND: list[tuple[Any, Any]] = [
    (dict[str, c.Offer], {"dev1": c.Offer(lease_s=3 * SECONDS_MAX, model=LONG, capabilities=("", LONG))}),
    (dict[str, c.Offer], {"": c.Offer(lease_s=0), LONG: c.Offer()}),
    (tuple[c.Traits, ...], (c.Traits(name=LONG, metadata={"": LONG}), c.Traits())),
    (Usage | None, Usage(input_tokens=1 << 60, cost_microusd=-1)),
    (tuple[tuple[int, str, bool], ...], ((1 << 60, LONG, True),)),
]


@pytest.mark.parametrize(("kind", "value"), BEYOND)
def test_what_is_beyond_the_limits_is_read(kind: Any, value: Any) -> None:
    assert json_reader(kind)(msgspec.json.encode(value)) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (dict[str, c.Offer], '{"dev1": {"leaseS": "soon"}}'),
        (dict[str, c.Offer], '{"dev1": 1}'),
        (dict[str, c.Offer], "[]"),
        (dict[str, c.Offer], '{"dev1": '),
        (tuple[tuple[int, str, bool], ...], "[[1]]"),
        (tuple[int, ...], "{}"),
    ],
)
def test_what_is_damaged_is_not_read(kind: Any, text: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        json_reader(kind)(text)


SECONDS = st.integers(1, SECONDS_MAX)


@given(heartbeat_s=SECONDS, stale_s=st.none() | SECONDS)
def test_no_heartbeat_makes_a_lease_that_nobody_may_ask_for(heartbeat_s: int, stale_s: int | None) -> None:
    msgspec.convert(stale_after_s(heartbeat_s, stale_s), c.Seconds)


AMOUNT = st.integers(0, 1 << 53)


@given(st.lists(st.builds(Usage, input_tokens=AMOUNT, cost_microusd=st.none() | AMOUNT), min_size=1))
def test_no_sum_of_usages_is_too_large_to_be_read(usages: list[Usage]) -> None:
    assert usage_of(usage_json(total(usages))) == total(usages)
