"""The API's description for people: a page in one file, and a chapter of the documentation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from muster.model.numbers import NUMBER_MAX
from muster.model.patterns import RULES
from muster.web.openapi import SCHEMAS

Json = dict[str, Any]
Link = Callable[[str], str]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 70rem; padding: 1rem 1.5rem 4rem; }
h2 { border-bottom: 1px solid var(--line); margin-top: 2.5rem; }
nav a { margin-right: .8rem; }
code, pre { font: 13px/1.5 ui-monospace, monospace; }
pre { background: var(--soft); border-radius: 4px; overflow-x: auto; padding: .6rem .8rem; }
details { border-bottom: 1px solid var(--line); padding: .4rem 0; }
summary { cursor: pointer; }
summary b { display: inline-block; font: 700 12px ui-monospace, monospace; width: 4rem; }
summary span { opacity: .75; }
table { border-collapse: collapse; width: 100%; }
td, th { border-bottom: 1px solid var(--line); padding: .25rem .8rem .25rem 0; text-align: left; }
td { vertical-align: top; }
"""


def operations(described: Json) -> Iterator[tuple[str, list[tuple[str, str, Json]]]]:
    """By tag, each operation with its method and path."""
    for tag in described["tags"]:
        yield (
            tag["name"],
            [
                (method.upper(), path, operation)
                for path, methods in described["paths"].items()
                for method, operation in methods.items()
                if tag["name"] in operation["tags"]
            ],
        )


def kind(schema: Json, link: Link) -> str:
    """What a value may be, in words."""
    if reference := schema.get("$ref"):
        return link(reference.removeprefix(SCHEMAS))
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(kind(option, link) for option in options))
    if values := schema.get("enum"):
        return ", ".join(f"`{value}`" for value in values)
    if "const" in schema:
        return f"`{schema['const']}`"
    match schema.get("type"):
        case "array":
            items = schema.get("items") or {"anyOf": schema.get("prefixItems", [])}
            return f"list of {kind(items, link)}" if items != {"anyOf": []} else "list"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object of {kind(schema['additionalProperties'], link)}"
        case None:
            return "anything"
        case str(name):
            encoded = "base64" if schema.get("contentEncoding") == "base64" else ""
            pattern = f"({RULES[schema['pattern']]})" if "pattern" in schema else ""
            return " ".join(filter(None, [name, encoded, pattern, _bounds(schema)]))
    return "anything"


def _bounds(schema: Json) -> str:
    """Those that say something: every integer is below 2^53."""
    least, most = (
        schema.get("minimum", schema.get("minLength")),
        schema.get("maximum", schema.get("maxLength")),
    )
    below = schema.get("exclusiveMaximum")
    if most is not None and most >= NUMBER_MAX:
        least, most = (least if (least or 0) > 0 else None), None
    what = " characters" if schema["type"] == "string" else ""
    told = f"below {below}" if below is not None else ""
    if most is None and least:
        told = f"from {least}" + (f", {told}" if told else "")
    elif most is not None:
        told = f"at most {most}" if least is None else f"{least} to {most}"
    return told + what if told else ""


def fields(schema: Json, link: Link) -> Iterator[tuple[str, str, str]]:
    """(name, what it may be, what it means) of each field."""
    wanted = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        says = field.get("description", "")
        default = field.get("default")
        told = [f"`{json.dumps(default)}` if left out"] if default not in (None, "", [], {}, False) else []
        needed = ["required"] if name in wanted else []
        yield name, "; ".join([kind(field, link), *needed, *told]), says


def _content(part: Json) -> tuple[str, Json]:
    """(media type, schema) of a body or an answer; empty where there is none."""
    for media, content in part.get("content", {}).items():
        return media, content.get("schema", {})
    return "", {}


def _told(part: Json, link: Link) -> str:
    media, schema = _content(part)
    if not media:
        return "nothing"
    return kind(schema, link) if media.endswith("json") else media.partition(";")[0]


# -- the chapter


def chapter(described: Json) -> str:
    lines = ["# The HTTP API", "", "Every request and answer, made from what the server declares.", ""]
    lines += [described["info"]["description"], ""]
    lines += [
        "`GET /api/v1/openapi.json` is this in OpenAPI 3.1, `/api/v1/docs` a page that needs nothing else.",
        "",
    ]

    def link(name: str) -> str:
        return f"[{name}](#{name.lower()})"

    for tag, found in operations(described):
        lines += [f"## {tag}", "", "| | body | answer | |", "|---|---|---|---|"]
        for method, path, operation in found:
            lines.append(_chapter_row(method, path, operation, link))
        lines.append("")
        for method, path, operation in found:
            lines += _chapter_details(method, path, operation, link)
    lines += ["# Shapes", ""]
    for name, schema in sorted(described["components"]["schemas"].items()):
        lines += [f"## {name}", ""]
        if says := schema.get("description"):
            lines += [says, ""]
        if "properties" not in schema:
            lines += [kind(schema, link), ""]
        elif schema["properties"]:
            lines += ["| field | | |", "|---|---|---|"]
            lines += [f"| `{field}` | {what} | {_cell(says)} |" for field, what, says in fields(schema, link)]
            lines.append("")
    return "\n".join(lines)


def _chapter_row(method: str, path: str, operation: Json, link: Link) -> str:
    body = _told(operation["requestBody"], link) if "requestBody" in operation else ""
    answers = [answer for status, answer in operation["responses"].items() if status < "3"]
    told = " or ".join(dict.fromkeys(_told(answer, link) for answer in answers))
    return f"| `{method} {path}` | {body} | {told} | {_cell(operation['summary'])} |"


def _chapter_details(method: str, path: str, operation: Json, link: Link) -> list[str]:
    asked = [one for one in operation.get("parameters", ()) if one["in"] != "path"]
    if not asked:
        return []
    lines = [f"`{method} {path}`", ""]
    for one in asked:
        where = " (header)" if one["in"] == "header" else ""
        says = f": {one['description']}" if "description" in one else ""
        lines.append(f"- `{one['name']}`{where} {kind(one['schema'], link)}{says}")
    return [*lines, ""]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# -- the page


def page(described: Json) -> str:
    sections = list(operations(described))
    info = described["info"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width'>",
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style>",
        f"<h1>{escape(info['title'])} API <small>{escape(info['version'])}</small></h1>",
        *(f"<p>{escape(text)}</p>" for text in info["description"].split("\n\n")),
        "<nav>",
        *(f"<a href='#{tag}'>{tag}</a>" for tag, _ in sections),
        "<a href='#shapes'>shapes</a></nav>",
    ]
    for tag, found in sections:
        parts.append(f"<h2 id='{tag}'>{tag}</h2>")
        parts += [_operation(*one) for one in found]
    parts.append("<h2 id=shapes>Shapes</h2>")
    for name, schema in sorted(described["components"]["schemas"].items()):
        said = f"<p>{escape(schema.get('description', ''))}</p>{_fields(schema)}"
        parts.append(f"<h3 id='shape-{name}'>{name}</h3>{said}")
    return "\n".join(parts)


def _link(name: str) -> str:
    return f"<a href='#shape-{name}'>{name}</a>"


def _operation(method: str, path: str, operation: Json) -> str:
    parts = [
        f"<details id='{operation['operationId']}'><summary><b>{method}</b> <code>{escape(path)}</code> "
        f"<span>{escape(operation['summary'])}</span></summary>"
    ]
    if more := operation.get("description"):
        parts.append(f"<p>{escape(more)}</p>")
    if asked := operation.get("parameters"):
        rows = [(one["name"], kind(one["schema"], _link), one.get("description", "")) for one in asked]
        parts.append(_table(rows))
    if body := operation.get("requestBody"):
        parts.append(f"<p>Body: {_told(body, _link)}</p>")
        examples = next(iter(body["content"].values())).get("examples", {})
        parts += [
            f"<p>{escape(one['summary'])}</p><pre>{escape(json.dumps(one['value'], indent=2))}</pre>"
            for one in examples.values()
        ]
    rows = [
        (status, _told(answer, _link), answer["description"])
        for status, answer in operation["responses"].items()
    ]
    return "".join([*parts, "<p>Answers</p>", _table(rows), "</details>"])


def _fields(schema: Json) -> str:
    return _table(fields(schema, _link)) if "properties" in schema else f"<p>{kind(schema, _link)}</p>"


def _table(rows: Any) -> str:
    cells = "".join(
        f"<tr><td><code>{escape(name)}</code><td>{what}<td>{escape(says)}" for name, what, says in rows
    )
    return f"<table>{cells}</table>"
