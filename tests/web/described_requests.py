"""Requests as the API's description allows them, and with one thing wrong, for hypothesis to draw."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from described import description
from hypothesis import strategies as st

UNHELD = frozenset({"wait", "waitS"})
"""How long an answer may be held: it comes at once here."""
WRONG: tuple[Any, ...] = (None, "", "é" * 300, -1, 0.5, 2**63, True, [], [None], {}, {"a": 1}, "a\0b")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


class Asked(NamedTuple):
    method: str
    target: str
    data: bytes
    headers: dict[str, str]


def requests(
    method: str, path: str, operation: Mapping[str, Any], there: Mapping[str, Any]
) -> st.SearchStrategy[Asked]:
    """`there`: values of the path's parameters that name something."""
    parameters = operation.get("parameters", [])
    at = {one["name"]: one["schema"] for one in parameters if one["in"] == "path"}
    asked = {one["name"]: one["schema"] for one in parameters if one["in"] == "query"}
    told = [one["name"] for one in parameters if one["in"] == "header"]
    bodies = operation.get("requestBody", {}).get("content", {})
    body = _body(bodies["application/json"]["schema"]) if bodies else st.just(b"")
    return st.builds(
        lambda at, asked, data, headers: Asked(
            method.upper(),
            path.format(**{name: quote(str(value), safe="") for name, value in at.items()})
            + (f"?{urlencode(asked, doseq=True)}" if asked else ""),
            data,
            headers,
        ),
        st.fixed_dictionaries(
            {name: _or_rarely(st.just(there[name]), values(schema)) for name, schema in at.items()}
        ),
        _some({name: _or_rarely(_as_word(name, schema), TEXTS) for name, schema in asked.items()}),
        body,
        _some({name: st.sampled_from(["1", "0", '"1"', "é".encode().decode("latin-1")]) for name in told}),
    )


def values(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """What this schema allows."""
    if reference := schema.get("$ref"):
        return _named(reference.rpartition("/")[2])
    if "anyOf" in schema:
        return st.one_of(*map(values, schema["anyOf"]))
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object":
            return _objects(schema)
        case "array" if "prefixItems" in schema:
            return st.tuples(*map(values, schema["prefixItems"])).map(list)
        case "array":
            least = schema.get("minItems", 0)
            return st.lists(values(schema.get("items", {})), min_size=least, max_size=least + 2)
        case "string" if schema.get("pattern", "").startswith("^https?:"):
            return st.just("http://127.0.0.1:9/")  # nobody else is sent anything
        case "string" if "pattern" in schema:
            return st.from_regex(schema["pattern"]).filter(lambda text: "\n" not in text)
        case "string":
            least = schema.get("minLength", 0)
            return st.text(min_size=least, max_size=min(schema.get("maxLength", 99), least + 20))
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "number":
            return st.floats(
                schema.get("minimum"), schema.get("maximum"), allow_nan=False, allow_infinity=False
            )
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
    return st.sampled_from(WRONG)  # anything goes


@functools.cache
def _named(name: str) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: values(description()["components"]["schemas"][name]))


def _objects(schema: Mapping[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    fields = schema.get("properties")
    if fields is None:
        names = values({"type": "string", "maxLength": 20} | schema.get("propertyNames", {}))
        return st.dictionaries(names, values(schema.get("additionalProperties", {})), max_size=2)
    made = {name: st.just(0) if name in UNHELD else values(one) for name, one in fields.items()}
    needed = {name: made.pop(name) for name in schema.get("required", [])}
    return st.builds(lambda all_of, some: all_of | some, st.fixed_dictionaries(needed), _some(made))


def _body(schema: Mapping[str, Any]) -> st.SearchStrategy[bytes]:
    """Mostly as described; else with one field wrong, missing or too many, or no object at all."""
    whole = values(schema)

    def spoil(body: Any, place: int, wrong: Any, how: str) -> Any:
        if not isinstance(body, dict) or how == "other":
            return wrong
        name = [*body, "more"][place % (len(body) + 1)]
        if name in UNHELD:
            return body
        if how == "missing":
            return {key: value for key, value in body.items() if key != name}
        return body | {name: wrong}

    hows = st.sampled_from(["wrong", "wrong", "missing", "other"])
    spoiled = st.builds(spoil, whole, st.integers(0, 30), st.sampled_from(WRONG), hows)
    encoded = st.one_of(whole, spoiled).map(lambda body: json.dumps(body).encode())
    return _or_rarely(encoded, st.sampled_from([b"", b"{", b"[" * 100, b"\xff", b'{"actor":NaN}']))


def _some(fields: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """A few of them, where there are many."""
    if not fields:
        return st.just({})
    names = st.lists(st.sampled_from(sorted(fields)), unique=True, max_size=3)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: fields[name] for name in chosen}))


def _as_word(name: str, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    return st.just(0) if name in UNHELD else values(schema)


def _or_rarely(usual: st.SearchStrategy[Any], rare: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 5).flatmap(lambda number: usual if number else rare)
