"""beads' JSON lines: an issue a line, with the edges that it hangs on."""

from __future__ import annotations

from collections import Counter

from .source import Item, Reading, ToolFiles, Value, list_of, sections, text_of, texts_of

NAME = "beads"
PRIORITIES = {"0": 10, "1": 7, "2": 4, "3": 2, "4": 1}
WAITS = frozenset({"blocks", "conditional-blocks", "waits-for"})
_LEFT_OUT = {"tombstone": "it was deleted", "deferred": "it is deferred", "pinned": "it is a note"}
_NO_WORK = frozenset({"message", "event", "gate", "molecule", "agent", "role"})
_TEXTS = {
    "": "description",
    "Design": "design",
    "Done when": "acceptance_criteria",
    "Notes": "notes",
}


def recognise(source: ToolFiles) -> str:
    rows = source.rows
    edges = [edge for row in rows for edge in list_of(row, "dependencies")]
    if any(text_of(edge, "depends_on_id") for edge in edges):
        return "issues with depends_on_id, one a line"
    if rows and all(row.get("id") and row.get("title") and "issue_type" in row for row in rows):
        return "issues with an issue_type, one a line"
    return ""


def read(source: ToolFiles) -> Reading:
    found = Reading("Beads" if source.stem in {"issues", "beads", ".beads", "stdin"} else source.stem)
    lost: Counter[str] = Counter()
    rows = [row for row in source.rows if text_of(row, "id")]
    parents = {parent for row in rows if (parent := _parent(row))}
    for row in rows:
        name, kind = text_of(row, "id"), text_of(row, "issue_type")
        status = text_of(row, "status")
        reason = _LEFT_OUT.get(status) or (f"it is a {kind}" if kind in _NO_WORK else "")
        if reason:
            if status != "tombstone":
                found.leave_out(f"{name} {text_of(row, 'title')}", reason)
            continue
        found.items.append(
            Item(
                id=name,
                title=text_of(row, "title"),
                text=sections({label: text_of(row, field) for label, field in _TEXTS.items()}),
                done=status == "closed",
                after=[text_of(edge, "depends_on_id", "id") for edge in _edges(row, WAITS)],
                parent=_parent(row),
                group=kind == "epic" and name in parents,
                fields=_fields(row),
            )
        )
        if status != "closed":
            _count_lost(lost, row)
    found.count_lost(lost)
    return found


def _edges(row: Value, kinds: frozenset[str]) -> list[Value]:
    return [
        edge for edge in list_of(row, "dependencies") if text_of(edge, "type", "dep_type") in (kinds or {""})
    ]


def _parent(row: Value) -> str:
    edges = _edges(row, frozenset({"parent-child"}))
    return text_of(edges[0], "depends_on_id", "id") if edges else text_of(row, "parent")


def _fields(row: Value) -> dict[str, object]:
    fields: dict[str, object] = {}
    if priority := PRIORITIES.get(text_of(row, "priority")):
        fields["priority"] = priority
    if labels := texts_of(row, "labels"):
        fields["tags"] = tuple(labels)
    if outside := text_of(row, "external_ref"):
        fields["metadata"] = {"external-ref": outside}
    if (minutes := text_of(row, "estimated_minutes")).isdigit() and int(minutes):
        fields["estimated_s"] = 60 * int(minutes)
    return fields


def _count_lost(lost: Counter[str], row: Value) -> None:
    lost["the assignee"] += bool(text_of(row, "assignee"))
    lost["the comments"] += bool(list_of(row, "comments"))
    for edge in list_of(row, "dependencies"):
        kind = text_of(edge, "type", "dep_type")
        if kind not in {*WAITS, "parent-child"}:
            lost[f"the link {kind or 'without a type'!r}"] += 1
