"""Functions as tasks: how their arguments travel, and how they are added."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack

import msgspec
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.durations import parse_duration
from muster.model.errors import BadInput
from muster.sdk.attempt import CURRENT
from muster.sdk.context import AsyncTaskContext, TaskContext
from muster.sdk.handles import AsyncHandle, Handle
from muster.sdk.options import CallOptions, FunctionOptions, earlier_of, fields_of
from muster.sdk.schedules import Cron, cron_of
from muster.sdk.values import checked, convert, encode, foreign_in, hints_of

P = ParamSpec("P")
R = TypeVar("R")

CONTEXTS = (TaskContext, AsyncTaskContext)


class Payload(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task's text: its function, and the arguments."""

    task: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}


class Adding(Protocol):
    """The app that a task is of."""

    name: str

    def enqueue(self, calls: Sequence[Call[R]]) -> list[Handle[R]]: ...

    async def enqueue_async(self, calls: Sequence[Call[R]]) -> list[AsyncHandle[R]]: ...


class Call(Generic[R]):
    """A task that is to be added: `app.enqueue` takes many of them at once."""

    def __init__(self, task: AppTask[..., R], spec: c.Spec) -> None:
        self.task = task
        self.spec = spec

    def __repr__(self) -> str:
        return f"<call of {self.task.app.name}/{self.task.name}>"


class AppTask(Generic[P, R]):
    """A function that runs as a task; calling it calls the function itself."""

    def __init__(
        self, app: Adding, function: Callable[..., Any], name: str, options: FunctionOptions
    ) -> None:
        self.app = app
        self.name = name
        self.function = function
        self.options = options
        self.is_async = inspect.iscoroutinefunction(function)
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self._hints = hints_of(function)
        self.takes_context, self._signature = _without_context(function, self._hints)
        self._refuse_foreign()
        self._no_arguments = encode(Payload(name), name)
        self._bare = not self._signature.parameters
        self.cron = _cron(name, options, self._signature)
        self._base = self._spec(options)

    def __repr__(self) -> str:
        return f"<task {self.app.name}/{self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, here and now, with whatever context is given."""
        return self.function(*args, **kwargs)

    def with_options(self, **changes: Unpack[CallOptions]) -> Self:
        """The same task with other options: `build.with_options(priority=9, delay="5m").enqueue(...)`."""
        if scheduled := sorted(_OF_A_CRON & changes.keys()):
            raise BadInput(
                f"{scheduled[0]} is said of the function, and not of a call", "@app.task(cron=...)"
            )
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__
        other.options = {**self.options, **changes}
        other._base = self._spec(other.options)
        return other

    @property
    def returns(self) -> Any:
        """The type of its result."""
        return self._hints.get("return", Any)

    def _refuse_foreign(self) -> None:
        for name, what in self._annotated():
            if foreign := foreign_in(self._hints.get(name, Any)):
                raise BadInput(
                    f"{what} of task {self.name} is a {foreign}, which nothing that is kept as JSON becomes",
                    "use numbers, texts, lists, dicts, dataclasses, msgspec structs or pydantic models",
                )

    @property
    def _written(self) -> Mapping[str, object]:
        """Its annotations as they stand there."""
        return getattr(inspect.unwrap(self.function), "__annotations__", {})

    def _annotated(self) -> list[tuple[str, str]]:
        """What goes in and comes out, and is annotated, with what it is called."""
        named = [(name, f"parameter {name}") for name in self._signature.parameters]
        return [(name, what) for name, what in [*named, ("return", "the result")] if name in self._written]

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """To be added with others by `app.enqueue`.  Raises TypeError where the arguments do not fit."""
        return Call(self, self._filled(args, kwargs))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Adds it; it is on the disk when this returns.  Raises TypeError where the arguments do not fit."""
        (handle,) = self.app.enqueue([self.call(*args, **kwargs)])
        return handle

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[R]:
        """As `enqueue`, for asynchronous programs."""
        (handle,) = await self.app.enqueue_async([self.call(*args, **kwargs)])
        return handle

    def arguments(self, payload: Payload) -> tuple[list[Any], dict[str, Any]]:
        """As they were annotated.  Raises msgspec.ValidationError, TypeError."""
        if self._bare and not (payload.args or payload.kwargs):
            return [], {}
        bound = self._signature.bind(*payload.args, **payload.kwargs)
        for name, value in bound.arguments.items():
            kind, how = self._hints.get(name, Any), self._signature.parameters[name].kind
            if how is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(convert(one, kind) for one in value)
            elif how is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {key: convert(one, kind) for key, one in value.items()}
            else:
                bound.arguments[name] = convert(value, kind)
        return list(bound.args), bound.kwargs

    def _spec(self, options: FunctionOptions) -> c.Spec:
        given = {
            "title": self.name,
            **fields_of(options, FunctionOptions),
            "agent": self.app.name,
            "capabilities": (self.name,),
            "depends_on": tuple(map(str, earlier_of(options))),
        }
        return checked(c.Spec(**given), f"task {self.name}")

    def _filled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> c.Spec:
        text = self._no_arguments
        if args or kwargs or not self._bare:
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{self.name}: {error}") from None
            text = encode(Payload(self.name, tuple(args), dict(kwargs)), f"what {self.name} is called with")
        # One that was added before is found by its idempotency key, and has its name already.
        key = f"{self.name}-{secrets.token_hex(6)}" if self._base.idempotency_key is None else None
        current = CURRENT.get()
        parent = None if current is None else current.job.task_id
        return replace(self._base, description=text, key=key, parent_task_id=parent)


def settle(task: AppTask[..., Any]) -> None:
    """All names that its annotations use are to be known now.  Raises BadInput where one is not."""
    task._hints.update(hints_of(task.function))
    task.takes_context, task._signature = _without_context(task.function, task._hints)
    for name, what in task._annotated():
        if name not in task._hints:
            raise BadInput(
                f"{what} of task {task.name} is annotated as {task._written[name]!r}, which nobody knows",
                "define or import it at the top of its module, not for type checkers only",
            )
    task._refuse_foreign()


def read_payload(text: str) -> Payload:
    """Raises BadInput."""
    try:
        return msgspec.json.decode(text, type=Payload)
    except msgspec.DecodeError as error:
        raise BadInput(f"it holds no arguments: {error}") from error


_OF_A_CRON = frozenset({"cron", "timezone", "catch_up"})


def _cron(name: str, options: FunctionOptions, signature: inspect.Signature) -> Cron | None:
    """Raises BadInput where it cannot be read, or where nobody knows what to call the function with."""
    expression = options.get("cron")
    if expression is None:
        if without := sorted(
            name for name, value in options.items() if name in _OF_A_CRON and value is not None
        ):
            raise BadInput(f"{without[0]} of task {name} says nothing without a cron", "@app.task(cron=...)")
        return None
    if needs := _needed(signature):
        raise BadInput(
            f"task {name} has a cron and needs arguments: {', '.join(needs)}", "give them defaults"
        )
    return cron_of(expression, options.get("timezone", "UTC"), parse_duration(options.get("catch_up", 0)))


def _needed(signature: inspect.Signature) -> list[str]:
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, one in signature.parameters.items()
        if one.default is inspect.Parameter.empty and one.kind not in free
    ]


def _without_context(
    function: Callable[..., Any], hints: Mapping[str, Any]
) -> tuple[bool, inspect.Signature]:
    """Whether its first parameter is the context, and how it is called without that."""
    signature = inspect.signature(function)
    names = list(signature.parameters)
    first = names[0] if names else ""
    takes = hints.get(first) in CONTEXTS or (first == "ctx" and first not in hints)
    if not takes:
        return False, signature
    rest = [signature.parameters[name] for name in names[1:]]
    return True, signature.replace(parameters=rest)
