"""Rows as structs and back, by the types that the structs declare: what SQLite has no type for is JSON text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from operator import attrgetter
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from muster.model.access import Member, Token
from muster.model.agents import AgentBeat, AgentRow
from muster.model.as_stored import json_reader
from muster.model.commands import Offer
from muster.model.edits import KeptTask
from muster.model.errors import StoreFault
from muster.model.events import Event
from muster.model.outlines import TaskOutline
from muster.model.rows import Lane, NewTask, Plan, WorkerRow
from muster.model.secrets import Secret
from muster.model.task import Attempt, Task, TaskFields
from muster.model.views import AttemptView, EventView, TaskView
from muster.model.webhooks import HookMessage, NewMessage, WebhookRow

S = TypeVar("S", bound=Struct)

Row = Sequence[Any]
_PLAIN = (int, str, bytes)
_NAMES = frozenset({"id", "name", "task_id"})


_encode = msgspec.json.Encoder().encode
_EMPTY: dict[type[object], str] = {tuple: "[]", dict: "{}"}


def encode_json(value: object) -> str:
    if not value and (known := _EMPTY.get(type(value))):
        return known
    return _encode(value).decode()


def _kinds(struct: type[Struct]) -> dict[str, Any]:
    """The type of each field, without None."""
    hints = get_type_hints(struct)
    return {name: _present(hints[name]) for name in struct.__struct_fields__}


def _present(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (arg for arg in get_args(hint) if arg is not type(None))
    return hint


def _is_json(kind: Any) -> bool:
    return (
        kind not in _PLAIN and kind is not bool and not (isinstance(kind, type) and issubclass(kind, StrEnum))
    )


def _decoder(kind: Any) -> Callable[[Any], Any]:
    if kind is bool:
        return bool
    if _is_json(kind):
        return json_reader(kind)
    return {str(member): member for member in kind}.__getitem__


def reader(struct: type[S]) -> Callable[[Row], S]:
    """Makes the struct of a row whose columns stand in the order of its fields; the last ones may be absent.

    It raises StoreFault, naming the row, where one of them is damaged.
    """
    names = struct.__struct_fields__
    kinds = enumerate(_kinds(struct).values())
    decoders = [(i, _decoder(kind)) for i, kind in kinds if kind not in _PLAIN]
    by_name = not struct.__match_args__

    def read(row: Row) -> S:
        values = list(row)
        for i, decode in decoders:
            if values[i] is not None:
                try:
                    values[i] = decode(values[i])
                except msgspec.DecodeError as error:
                    raise _damaged(struct, row, names[i], error) from error
        return struct(**dict(zip(names, values, strict=False))) if by_name else struct(*values)

    return read


def _damaged(struct: type[Struct], row: Row, column: str, error: Exception) -> StoreFault:
    table = struct.__name__.removesuffix("Row").lower()
    named = next(
        str(value) for name, value in zip(struct.__struct_fields__, row, strict=False) if name in _NAMES
    )
    return StoreFault(
        f"the store is damaged: {column} of {table} {named} cannot be read ({error}); nothing was changed",
        "put back a backup of before; muster db check names such rows of a store's file",
    )


def writer(struct: type[S], columns: Sequence[str] = ()) -> Callable[[S], tuple[Any, ...]]:
    """The row of a struct: all its fields, or these."""
    kinds = _kinds(struct)
    names = columns or struct.__struct_fields__
    get = attrgetter(*names)
    encoded = [i for i, name in enumerate(names) if _is_json(kinds[name])]

    def row(made: S) -> tuple[Any, ...]:
        values = list(get(made))
        for i in encoded:
            values[i] = encode_json(values[i])
        return tuple(values)

    return row if encoded else get if columns else astuple


task_of = reader(Task)
attempt_of = reader(Attempt)
worker_of = reader(WorkerRow)
event_of = reader(Event)
plan_of = reader(Plan)
lane_of = reader(Lane)
member_of = reader(Member)
token_of = reader(Token)
webhook_of = reader(WebhookRow)
agent_of = reader(AgentRow)
beat_of = reader(AgentBeat)
secret_of = reader(Secret)
hook_message_of = reader(HookMessage)
kept_of = reader(KeptTask)
task_view_of = reader(TaskView)
outline_of = reader(TaskOutline)
_attempt_view_of = reader(AttemptView)
event_view_of = reader(EventView)
_offers_of = json_reader(dict[str, Offer])


def told_attempt_of(row: Row) -> AttemptView:
    """Its last column is what its worker offers: what that says of this agent's kind."""
    *own, offers = row
    view = _attempt_view_of(own)
    with suppress(msgspec.DecodeError):  # a worker's damaged row keeps nobody from the task
        if (offer := _offers_of(offers).get(view.agent)) is not None:
            return replace(view, agent_kind=offer.kind)
    return view


_ELSEWHERE = {*Task.__struct_fields__, "task_id", "parent", "depends_on", "dependencies"}
TEXTS = tuple(name for name in NewTask.__struct_fields__ if name not in _ELSEWHERE)
"""The columns of a task that are not its state ..."""
EDITED = tuple(name for name in TEXTS if name in TaskFields.__struct_fields__)
"""... and those of them that a person may edit under the same name."""
texts_of = writer(NewTask, TEXTS)
edited_of = writer(TaskFields, EDITED)
worker_row = writer(WorkerRow)
lane_row = writer(Lane)
member_row = writer(Member)
token_row = writer(Token)
webhook_row = writer(WebhookRow)
told_row = writer(WebhookRow, ("failures", "last_delivered_at_ms", "disabled", "matters"))
agent_row = writer(AgentRow)
beat_row = writer(AgentBeat)
message_row = writer(NewMessage)
secret_row = writer(Secret)
