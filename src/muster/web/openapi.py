"""The API's description in OpenAPI 3.1, made from the declarations of the routes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from muster import __version__
from muster.model.fields import FIELDS, camel
from muster.model.task import TaskFields
from muster.web.examples import ASKED, EXAMPLES
from muster.web.field_words import FieldWords
from muster.web.http import JSON, PROBLEM, Problem
from muster.web.open_paths import OPEN
from muster.web.routes import Route

Json = dict[str, Any]

SCHEMAS = "#/components/schemas/"

_ABOUT = """Muster runs a crew of AI agents on a plan, and never loses a task.

Times are Unix milliseconds (`...Ms`), durations seconds (`...S`), ids integers below 2^53. Unknown fields and
unknown query parameters are refused by name. Every refusal is a problem of RFC 9457 with a `code` and a
`hint`."""
ACTOR = "Who says so: over the network whoever asks, whatever is written here; else the user who runs Muster."
_PREFIX = re.compile(r"^/(?:api/v1/|(attempt|worker)/v1/)?")
_VARIABLE = re.compile(r"{(\w+)(?::(\w+))?}")
_RAISES = re.compile(r"\s*Raises [^.]*\.")
"""Said to those who read the code: the answers tell it."""
_WHERE = {
    401: "the caller is not known",
    403: "the caller is known and may not do this; or it is a page of another site",
    404: "what is named is not there",
    409: "the task, plan or worker is in no state for this",
    412: "the task has changed since: `If-Match` does not fit; or the plan, or its work, since `seen...`",
    413: "the body is too large",
    415: "the body comes in an encoding, such as gzip, that is not read",
    422: "a field or a parameter is wrong: `errors` says which",
    429: "too much is waiting or asked: later, after `Retry-After` where it is given",
    500: "an error of Muster itself",
    502: "a forge, or the tool that asks it, does not let the server do it",
    503: "for the moment; to be tried again",
    507: "nothing can be written: the disk is full, or the store has halted",
}
_ALWAYS = (401, 403, 422, 429, 500, 503, 507)


def document(made: Iterable[tuple[str, Route]]) -> Json:
    routes = sorted(made, key=lambda one: (_tag(_plain(one[1])), _plain(one[1]), one[0]))
    schemas = _Schemas([route for _, route in routes])
    paths: Json = {}
    for method, route in routes:
        paths.setdefault(_plain(route), {})[method.lower()] = _operation(method, route, schemas)
    described = {
        "openapi": "3.1.0",
        "info": {
            "title": "Muster",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "tags": [{"name": tag} for tag in sorted({_tag(path) for path in paths})],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }
    plain: Json = msgspec.json.decode(msgspec.json.encode(described))  # defaults that are tuples are lists
    return plain


def _plain(route: Route) -> str:
    """The path as OpenAPI writes it."""
    return _VARIABLE.sub(lambda found: f"{{{camel(found[1])}}}", "/".join(route.parts))


def _tag(path: str) -> str:
    match = _PREFIX.match(path)
    return (match and match[1]) or path[match.end() if match else 0 :].partition("/")[0]


def operation_id(method: str, path: str) -> str:
    """`agentTasksCancel`, `agentTasksList`: what it is about, then what is done with it."""
    tag = _tag(path)
    behind = path[_PREFIX.match(path).end() :].removeprefix(tag)  # type: ignore[union-attr]
    words = [part for part in behind.split("/") if part and not part.startswith("{")]
    verb = {"POST": "", "PATCH": "update", "PUT": "put", "DELETE": "delete"}.get(method, "get")
    many = path.endswith("s") and not path.endswith("status")
    if not words and many:
        verb = "list" if verb == "get" else verb or "create"
    return camel(re.sub(r"\W", "_", "_".join(filter(None, [tag, verb, *words]))))


def _operation(method: str, route: Route, schemas: _Schemas) -> Json:
    path = _plain(route)
    by = route.said.by
    words = inspect.cleandoc(getattr(by, "__doc__", None) or _spaced(getattr(by, "__name__", "")))
    summary, _, more = _RAISES.sub("", words).partition("\n\n")
    operation: Json = {
        "operationId": operation_id(method, path),
        "tags": [_tag(path)],
        "summary": " ".join(summary.split()),
    }
    if more:
        operation["description"] = more
    headers = [
        {"name": name, "in": "header", "schema": {"type": "string"}, "description": says}
        for name, says in route.said.headers.items()
    ]
    if parameters := [*_path_parameters(route), *_query_parameters(method, route, schemas), *headers]:
        operation["parameters"] = parameters
    if path in OPEN:
        operation["security"] = []
    statuses = {*_ALWAYS}
    if "parameters" in operation or method != "GET":
        statuses |= {404, 409}
    if method != "GET":
        statuses.add(413)
    fields = getattr(route.body, "__struct_fields__", ())
    if "If-Match" in route.said.headers or any(name.startswith("seen_") for name in fields):
        statuses.add(412)
    if path.endswith("/pull-request") and method == "POST":
        statuses.add(502)
    if (body := route.body) is not None:
        statuses.add(415)
        content: Json = {"schema": schemas.of(body)}
        if examples := EXAMPLES.get((method, path)):
            content["examples"] = {
                example.name: {"summary": example.says, "value": example.body} for example in examples
            }
        operation["requestBody"] = {"required": True, "content": {JSON: content}}
    operation["responses"] = {
        **{str(status): _answer(status, shape, schemas) for status, shape in route.answers.items()},
        **{str(status): _problem(status) for status in sorted(statuses - route.answers.keys())},
    }
    return operation


def _spaced(name: str) -> str:
    """`AddArtifact` says enough of what it does."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize() + "."


def _answer(status: int, shape: Any, schemas: _Schemas) -> Json:
    answer: Json = {"description": HTTPStatus(status).phrase}
    if isinstance(shape, str):
        answer["content"] = {shape: {"schema": {"type": "string"}}}
    elif shape is bytes:
        answer["content"] = {"application/octet-stream": {}}
    elif shape is not None:
        answer["content"] = {JSON: {"schema": schemas.of(shape)}}
    return answer


def _problem(status: int) -> Json:
    content = {PROBLEM: {"schema": {"$ref": f"{SCHEMAS}{Problem.__name__}"}}}
    return {"description": _WHERE[status], "content": content}


def _path_parameters(route: Route) -> list[Json]:
    variables = _VARIABLE.findall("/".join(route.parts))
    shapes: Mapping[str, Json] = {"id": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}}
    return [
        {"name": camel(name), "in": "path", "required": True, "schema": shapes.get(kind, {"type": "string"})}
        for name, kind in variables
    ]


def _query_parameters(method: str, route: Route, schemas: _Schemas) -> list[Json]:
    if (query := route.query) is None:
        return []
    examples = ASKED.get(_plain(route), {}) if method == "GET" else {}
    shape = schemas.whole(query)
    wanted = shape.get("required", ())
    parameters = []
    for name, schema in shape["properties"].items():
        plain = _without_null(schema)
        says = plain.pop("description", "")
        parameter: Json = {"name": name, "in": "query", "required": name in wanted, "schema": plain}
        if name in examples:
            parameter["example"] = examples[name]
        parameters.append(parameter | ({"description": says} if says else {}))
    return parameters


def _without_null(schema: Json) -> Json:
    """What may be left out of a query is not given as null."""
    options = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    if rest.get("default", ...) is None:
        del rest["default"]
    return rest | options[0] if len(options) == 1 else dict(schema)


class _Schemas:
    """The shapes of all routes by name, with what the code says of each field."""

    def __init__(self, routes: list[Route]) -> None:
        queries = {query for route in routes if (query := route.query) is not None}
        shapes: list[Any] = [Problem, *queries]
        for route in routes:
            shapes += [shape for shape in (route.body, *route.answers.values()) if _described(shape)]
        unique = _unique(shapes)
        refs, self.components = msgspec.json.schema_components(unique, ref_template=SCHEMAS + "{name}")
        for component in self.components.values():
            if text := component.get("description"):  # before msgspec 0.23 as it stands in the source
                component["description"] = inspect.cleandoc(text)
        self._refs = dict(zip(map(_key, unique), refs, strict=True))
        self._describe(unique)
        for name in {_key(route.body) for route in routes if route.body is not None}:
            self._need_no_actor(self.components.get(name, {}))
        self._queries = {query: self.components.pop(query.__name__) for query in queries}

    def of(self, shape: Any) -> Json:
        found: Json = self._refs[_key(shape)]
        return found

    def whole(self, query: type[Struct]) -> Json:
        found: Json = self._queries[query]
        return found

    @staticmethod
    def _need_no_actor(component: Json) -> None:
        """As `identity.decoded` fills it in."""
        if "actor" in component.get("required", ()):
            component["required"] = [name for name in component["required"] if name != "actor"]
            component["properties"]["actor"] = {"description": ACTOR, **component["properties"]["actor"]}

    def _describe(self, shapes: list[Any]) -> None:
        words = FieldWords()
        fields = {field.api: field.says for field in FIELDS}
        for shape in _structs(shapes):
            component = self.components[shape.__name__]
            spoken: type = getattr(shape, "__fields_of__", shape)
            said = words.of(spoken)
            of_task = fields if issubclass(spoken, TaskFields) or spoken.__name__ == "EditTaskBody" else {}
            if (text := said.get("")) and "description" not in component:
                component["description"] = text
            for one in msgspec.structs.fields(shape):
                text = said.get(one.name) or of_task.get(one.encode_name, "")
                schema = component["properties"][one.encode_name]
                if text and "description" not in schema:
                    component["properties"][one.encode_name] = {**schema, "description": text}


def _described(shape: Any) -> bool:
    return shape not in (None, bytes) and not isinstance(shape, str)


def _key(shape: Any) -> Any:
    return shape.__name__ if isinstance(shape, type) and issubclass(shape, Struct) else str(shape)


def _unique(shapes: Iterable[Any]) -> list[Any]:
    """Bodies are made anew whenever they are asked for."""
    return list({_key(shape): shape for shape in shapes}.values())


def _structs(shapes: list[Any]) -> list[type[Struct]]:
    """All structs that these are made of."""
    found: dict[type[Struct], None] = {}

    def look(kind: object) -> None:
        if isinstance(kind, types.StructType):
            if kind.cls in found:
                return
            found[kind.cls] = None
        if isinstance(kind, types.Type | types.Field):
            for name in kind.__struct_fields__:
                look(getattr(kind, name))
        elif isinstance(kind, tuple):
            for part in kind:
                look(part)

    for kind in types.multi_type_info(shapes):
        look(kind)
    return list(found)
