"""Arguments, results and states as JSON, and back as the types that were annotated."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec.inspect import CustomType, Field, Type, type_info

from muster.model.errors import BadInput
from muster.model.nul import holds_nul

S = TypeVar("S", bound=msgspec.Struct)

_LOCK = threading.RLock()
"""msgspec 0.22 crashes where two threads are the first to use one type."""


def encode(value: object, what: str) -> str:
    """JSON.  Raises BadInput where `value` cannot be written so."""
    if value is None:
        return "null"
    try:
        with _LOCK:
            text = msgspec.json.encode(value, enc_hook=_to_plain).decode()
            if "null" in text and _holds_no_number(msgspec.to_builtins(value, enc_hook=_to_plain)):
                raise ValueError("it has no NaN and no infinity")
            return text
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise BadInput(
            f"{what} cannot be written as JSON: {error}; nothing was changed",
            "use numbers, texts, lists, dicts, dataclasses, msgspec structs or pydantic models",
        ) from error


def checked(made: S, what: str) -> S:
    """`made`, where it is as whoever sends it over HTTP may have it.  Raises BadInput."""
    try:
        with _LOCK:
            data = msgspec.json.encode(made)
            if holds_nul(data):
                raise ValueError("it holds a NUL character")
            return msgspec.json.decode(data, type=type(made))
    except (TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"{what} cannot be: {error}; nothing was changed") from error


def _holds_no_number(value: object) -> bool:
    """What msgspec writes as null, and nobody would get back."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_holds_no_number, value.values()))
    return isinstance(value, list | tuple) and any(map(_holds_no_number, value))


def decode(text: str | bytes, kind: Any) -> Any:
    """As `kind`.  Raises msgspec.ValidationError where it is not of that type."""
    return convert(msgspec.json.decode(text), kind)


def convert(value: object, kind: Any) -> Any:
    """What JSON holds as `kind`; what is annotated with nothing that JSON could become stays as it is."""
    if kind is Any or kind is object or kind is inspect.Parameter.empty or kind is None:
        return value
    try:
        with _LOCK:
            return msgspec.convert(value, kind, dec_hook=_from_plain, str_keys=True)
    except TypeError:  # a type that says nothing of JSON, like a TypeVar
        return value


def hints_of(function: Callable[..., object]) -> dict[str, Any]:
    """Annotations by name, without those that name what is not known now."""
    try:
        return get_type_hints(function)
    except (NameError, TypeError):
        unwrapped = inspect.unwrap(function)
        known = getattr(unwrapped, "__globals__", {})
        return {
            name: hint
            for name, written in getattr(unwrapped, "__annotations__", {}).items()
            for hint in _hint(name, written, known)
        }


def _hint(name: str, written: object, known: dict[str, Any]) -> list[Any]:
    try:
        return [get_type_hints(SimpleNamespace(__annotations__={name: written}), known)[name]]
    except (NameError, TypeError):
        return []


def foreign_in(kind: Any) -> str:
    """The type in this annotation that nothing in JSON becomes; empty: there is none."""
    try:
        with _LOCK:
            found = type_info(kind)
    except (TypeError, RecursionError):
        return ""  # it says nothing of JSON, like a TypeVar: what comes stays as it is
    seen: set[int] = set()
    left: list[object] = [found]
    while left:
        one = left.pop()
        if isinstance(one, tuple):
            left += one
        elif isinstance(one, CustomType) and one.cls is not object and not hasattr(one.cls, "model_validate"):
            return one.cls.__qualname__
        elif isinstance(one, Type | Field) and id(one) not in seen:
            seen.add(id(one))
            left += [getattr(one, name) for name in one.__struct_fields__]
    return ""


def _to_plain(value: object) -> object:
    """pydantic models, without knowing pydantic."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} is no type of JSON")
    return dump(mode="json")


def _from_plain(kind: type, value: object) -> object:
    if kind is object:
        return value
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise TypeError(f"{kind} is no type of JSON")
    return validate(value)
