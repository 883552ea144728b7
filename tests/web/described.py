"""What the API says of itself, to hold real answers against."""

from __future__ import annotations

import functools
import re
import threading
from typing import Any

from jsonschema import Draft202012Validator

from muster.web.app import declared
from muster.web.http import JSON, PROBLEM
from muster.web.openapi import document

_MAKING = threading.Lock()


@functools.cache
def _made() -> dict[str, Any]:
    return document(declared())


def description() -> dict[str, Any]:
    with _MAKING:  # tests ask from many threads
        return _made()


@functools.cache
def _operations() -> list[tuple[str, re.Pattern[str], dict[str, Any]]]:
    """Literal paths come before those that would take them as a value."""
    paths = sorted(description()["paths"].items(), key=lambda one: one[0].count("{"))
    return [
        (method.upper(), re.compile(re.sub(r"{[^/]*}", "[^/]+", path)), operation)
        for path, methods in paths
        for method, operation in methods.items()
    ]


def operation(method: str, target: str) -> dict[str, Any] | None:
    """The one that answers; None where nothing does."""
    path = target.partition("?")[0]
    return next((o for m, pattern, o in _operations() if m == method and pattern.fullmatch(path)), None)


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    """What an answer holds besides what is described is an error as well."""
    schemas = {
        one: {"additionalProperties": False, **schema} if "properties" in schema else schema
        for one, schema in description()["components"]["schemas"].items()
    }
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": {"schemas": schemas}})


def _problems(schema: dict[str, Any], answer: Any) -> list[str]:
    if reference := schema.get("$ref"):
        found = _validator(reference.rpartition("/")[2]).iter_errors(answer)
        return [f"{error.json_path}: {error.message[:300]}" for error in found]
    if schema.get("type") == "array" and isinstance(answer, list):
        return [problem for one in answer for problem in _problems(schema["items"], one)]
    whole = {**schema, "components": description()["components"]}
    return [error.message[:300] for error in Draft202012Validator(whole).iter_errors(answer)]


def misfits(method: str, target: str, status: int, answer: Any) -> list[str]:
    """What of an answer is not as described."""
    found = operation(method, target)
    if found is None or status == 405:
        return [] if status in {404, 405} else [f"{method} {target} is not described"]
    told = found["responses"].get(str(status))
    if told is None:
        return [f"{method} {target} does not say that it answers {status}"]
    schema = next((c["schema"] for m, c in told.get("content", {}).items() if m in (JSON, PROBLEM)), None)
    if schema is None or answer is None:
        return []
    return [f"{method} {target} {status}: {problem}" for problem in _problems(schema, answer)]
