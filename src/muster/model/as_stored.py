"""Values of JSON columns as types, whatever limits these declare.

Limits are asked of what comes in.  What was written once is read also where they have become narrower since, or
where nobody has asked them: a row that could not be read would keep everybody from the whole store.
"""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct, ValidationError
from msgspec.structs import fields


def json_reader(kind: Any) -> Callable[[Any], Any]:
    """Raises msgspec.DecodeError for what is no JSON, or other values than those of the type."""
    within_limits = msgspec.json.Decoder(kind).decode

    def read(text: Any) -> Any:
        try:
            return within_limits(text)
        except ValidationError:
            return _made_of(kind, msgspec.json.decode(text))

    return read


def _made_of(kind: Any, value: Any) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in {Union, UnionType}:
        (present,) = (arg for arg in inner if arg is not type(None))
        return None if value is None else _made_of(present, value)
    if origin is dict and isinstance(value, dict):
        of_name, of_value = inner
        return {_made_of(of_name, name): _made_of(of_value, given) for name, given in value.items()}
    if origin is tuple and isinstance(value, list):
        kinds = [inner[0]] * len(value) if inner[-1] is Ellipsis else inner
        if len(kinds) == len(value):
            return tuple(_made_of(one, given) for one, given in zip(kinds, value, strict=True))
    if isinstance(kind, type) and issubclass(kind, Struct) and isinstance(value, dict):
        return _struct_of(kind, value)
    return msgspec.convert(value, kind)


def _struct_of(kind: type[Struct], value: dict[str, Any]) -> Struct:
    hints = get_type_hints(kind)  # without their limits
    given = {one.name: value[one.encode_name] for one in fields(kind) if one.encode_name in value}
    try:
        return kind(**{name: _made_of(hints[name], each) for name, each in given.items()})
    except TypeError as error:
        raise ValidationError(str(error)) from error
