"""Whole numbers of what is asked and commanded: a store keeps those below 2^63, and every JSON parser those up to
2^53."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator

import pytest
from msgspec import Struct
from msgspec.inspect import (
    DictType,
    IntType,
    ListType,
    SetType,
    StructType,
    TupleType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)
from web_site import Site

from muster import web
from muster.model.commands import Command
from muster.model.numbers import NUMBER_MAX
from muster.web.http import Body, Query

for module in pkgutil.iter_modules(web.__path__, "muster.web."):
    importlib.import_module(module.name)  # where the bodies are defined


def below(struct: type[Struct]) -> Iterator[type[Struct]]:
    for child in struct.__subclasses__():
        yield child
        yield from below(child)


def integers(kind: Type, where: str, within: tuple[type, ...] = ()) -> Iterator[tuple[str, IntType]]:
    match kind:
        case IntType():
            yield where, kind
        case ListType(item_type=item) | SetType(item_type=item) | VarTupleType(item_type=item):
            yield from integers(item, where, within)
        case TupleType(item_types=kinds) | UnionType(types=kinds):
            for one in kinds:
                yield from integers(one, where, within)
        case DictType(key_type=name, value_type=value):
            yield from integers(name, where, within)
            yield from integers(value, where, within)
        case StructType(cls=cls, fields=fields) if cls not in within:
            for field in fields:
                yield from integers(field.type, f"{cls.__name__}.{field.name}", (*within, cls))


@pytest.mark.parametrize("base", [Command, Body, Query])
def test_every_whole_number_has_bounds(base: type[Struct]) -> None:
    found = {where: kind for one in below(base) for where, kind in integers(type_info(one), one.__name__)}
    assert found
    unbounded = [
        where
        for where, kind in found.items()
        if kind.ge is None or (kind.le is None and kind.lt is None) or (kind.le or kind.lt or 0) >= 1 << 63
    ]
    assert unbounded == []
    ids = {where: kind for where, kind in found.items() if where.endswith(("task_id", "task_ids", "plan_id"))}
    assert {where: kind.le for where, kind in ids.items() if kind.le != NUMBER_MAX} == {}


@pytest.mark.parametrize("number", [0, -1, NUMBER_MAX + 1, 1 << 63, 1 << 70])
def test_a_budget_of_a_task_that_no_store_can_number_is_refused(site: Site, number: int) -> None:
    body = json.dumps({"actor": "x", "microusd": 1, "taskId": number}).encode()
    assert site.refused("POST", "/api/v1/budgets", body) == (422, "bad_input")
