"""Functions as tasks: how their arguments travel, and how they are added."""

from __future__ import annotations

import inspect
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar

import msgspec
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.durations import parse_duration
from muster.model.errors import BadInput
from muster.sdk.attempt import CURRENT
from muster.sdk.context import AsyncTaskContext, TaskContext
from muster.sdk.handles import AsyncHandle, Handle
from muster.sdk.values import convert, encode, hints_of

P = ParamSpec("P")
R = TypeVar("R")

CONTEXTS = (TaskContext, AsyncTaskContext)


class Payload(msgspec.Struct, frozen=True, omit_defaults=True):
    """A task's text: its function, and the arguments."""

    task: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What may be said of a task besides its arguments; times as `30s`, `2h`, or in seconds."""

    title: str | None = None
    priority: int = 5
    retries: int | None = None
    """Tries after the first one.  None, like the timeout: what the settings say."""
    timeout: float | str | None = None
    delay: float | str | None = None
    """No attempt begins before it is over."""
    not_before: datetime | None = None
    expires: float | str | None = None
    """No attempt begins after it is over."""
    after: tuple[Handle[Any] | AsyncHandle[Any] | int | str, ...] = ()
    """Tasks that must be done first."""
    idempotency_key: str | None = None
    """Adding another task with the same key gives the first one."""
    limit_key: str | None = None
    """Tasks of one key share a limit of `[limits]`."""
    tags: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    cron: str | None = None
    """When it is added by itself while a worker is up; its function needs no arguments then."""
    timezone: str = "UTC"
    catch_up: float | str = 0
    """How late a time of `cron` may still be made up for after nobody was up."""


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


class AppTask(Generic[P, R]):
    """A function that runs as a task; calling it calls the function itself."""

    def __init__(self, app: Adding, function: Callable[..., Any], name: str, options: Options) -> None:
        self.app = app
        self.name = name
        self.function = function
        self.options = options
        self.is_async = inspect.iscoroutinefunction(function)
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self._hints = hints_of(function)
        self.returns: Any = self._hints.get("return", Any)
        self.takes_context, self._signature = _without_context(function, self._hints)
        self._no_arguments = encode(Payload(name), name)
        self._bare = not self._signature.parameters
        if options.cron is not None and (needs := _needed(self._signature)):
            raise BadInput(f"task {name} has a cron and needs arguments: {', '.join(needs)}")
        self._base = self._spec(options)

    def __repr__(self) -> str:
        return f"<task {self.app.name}/{self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, here and now, with whatever context is given."""
        return self.function(*args, **kwargs)

    def with_options(self, **changes: Any) -> Self:
        """The same task with other options: `build.with_options(priority=9, delay="5m").enqueue(...)`."""
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__
        other.options = _checked(msgspec.structs.asdict(self.options) | changes, self.name)
        other._base = self._spec(other.options)
        return other

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

    def _spec(self, options: Options) -> c.Spec:
        after = tuple(str(one.id if isinstance(one, Handle | AsyncHandle) else one) for one in options.after)
        return c.Spec(
            title=options.title or self.name,
            agent=self.app.name,
            capabilities=(self.name,),
            priority=options.priority,
            max_retries=options.retries,
            timeout_s=_whole(options.timeout),
            delay_s=_whole(options.delay),
            expires_s=_whole(options.expires),
            not_before_ms=None if options.not_before is None else int(options.not_before.timestamp() * 1000),
            depends_on=after,
            idempotency_key=options.idempotency_key,
            limit_key=options.limit_key,
            tags=options.tags,
            metadata=options.metadata,
        )

    def _filled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> c.Spec:
        text = self._no_arguments
        if args or kwargs or not self._bare:
            self._signature.bind(*args, **kwargs)
            text = encode(Payload(self.name, tuple(args), dict(kwargs)), f"what {self.name} is called with")
        # One that was added before is found by its idempotency key, and has its name already.
        key = f"{self.name}-{secrets.token_hex(6)}" if self._base.idempotency_key is None else None
        current = CURRENT.get()
        parent = None if current is None else current.job.task_id
        return replace(self._base, description=text, key=key, parent_task_id=parent)


def read_payload(text: str) -> Payload:
    """Raises BadInput."""
    try:
        return msgspec.json.decode(text, type=Payload)
    except msgspec.DecodeError as error:
        raise BadInput(f"it holds no arguments: {error}") from error


def _checked(given: Mapping[str, Any], name: str) -> Options:
    unknown = sorted(given.keys() - set(Options.__struct_fields__))
    if unknown:
        known = ", ".join(Options.__struct_fields__)
        raise BadInput(f"task {name} has no option {unknown[0]!r}", f"one of {known}")
    after = given.get("after", ())
    given = {**given, "after": tuple(after) if isinstance(after, list | tuple) else (after,)}
    return Options(**given)


def options_of(given: Mapping[str, Any], name: str) -> Options:
    """Raises BadInput for an option that there is not."""
    return _checked(given, name)


def _whole(time: float | str | None) -> int | None:
    return None if time is None else max(1, round(parse_duration(time)))


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
