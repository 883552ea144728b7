"""task-master's `tasks.json`: `{"tasks": [...]}`, or one such list for each tag."""

from __future__ import annotations

from collections import Counter

from muster.model.errors import BadInput

from .source import Item, Reading, ToolFiles, Value, list_of, priority_of, sections, text_of, texts_of

NAME = "task-master"
_DONE = {"done", "completed"}
_LEFT_OUT = {"cancelled": "it is cancelled", "deferred": "it is deferred"}
_LISTS = ("subtasks", "dependencies")
_USUAL_TAG = "master"


def recognise(source: ToolFiles) -> str:
    lists = _lists(source.json)
    rows = [row for tag in lists.values() for row in tag if isinstance(row, dict)]
    if rows and any(name in row for row in rows for name in (*_LISTS, "testStrategy")):
        return "tasks with dependencies, subtasks or a testStrategy"
    return ""


def read(source: ToolFiles) -> Reading:
    lists = _lists(source.json)
    usual = _USUAL_TAG if _USUAL_TAG in lists else next(iter(lists))
    if source.tag and source.tag not in lists:
        raise BadInput(f"{source.name} has no tag {source.tag!r}", f"one of {', '.join(lists)}")
    chosen = source.tag or usual
    project = text_of(_under(source.json, "meta"), "projectName") or text_of(source.json, "projectName")
    found = Reading(project or (f"{chosen} tasks" if chosen not in {"", _USUAL_TAG} else "Tasks"))
    others = [f"{name} ({len(rows)})" for name, rows in lists.items() if name != chosen and rows]
    if others:
        found.lost.append(f"only tag {chosen} is read; --tag NAME is for the others: {', '.join(others)}")
    lost: Counter[str] = Counter()
    for row in lists[chosen]:
        if isinstance(row, dict):
            _read_task(found, row, "", lost)
    found.count_lost(lost)
    return found


def _under(document: Value, name: str) -> Value:
    return document.get(name) if isinstance(document, dict) else None


def _lists(document: Value) -> dict[str, list[Value]]:
    """The tasks by tag; the older form has but one list, without a name."""
    if isinstance(tasks := _under(document, "tasks"), list):
        return {"": tasks}
    if not isinstance(document, dict):
        return {}
    tags = {name: _under(value, "tasks") for name, value in document.items()}
    return {name: tasks for name, tasks in tags.items() if isinstance(tasks, list)}


def _read_task(found: Reading, row: Value, parent: str, lost: Counter[str]) -> None:
    number = text_of(row, "id")
    name = f"{parent}.{number}" if parent and not number.startswith(f"{parent}.") else number
    status = text_of(row, "status").lower()
    if reason := _LEFT_OUT.get(status):
        found.leave_out(f"{name} {text_of(row, 'title')}", reason)
        return
    children = [child for child in list_of(row, "subtasks") if isinstance(child, dict)]
    going_on = [child for child in children if text_of(child, "status").lower() not in _LEFT_OUT]
    text = {"": text_of(row, "description"), "Details": text_of(row, "details")}
    text["How to test it"] = text_of(row, "testStrategy")
    text["Done when"] = text_of(row, "acceptanceCriteria")
    metadata = {
        f"{NAME}-{key}": str(value)
        for key, value in (_under(row, "metadata") or {}).items()
        if isinstance(value, str | int | float)
    }
    found.items.append(
        Item(
            id=name,
            title=text_of(row, "title"),
            text=sections(text),
            done=status in _DONE,
            after=[_full(other, parent) for other in texts_of(row, "dependencies")],
            parent=parent,
            group=bool(going_on),
            fields=priority_of(text_of(row, "priority")) | ({"metadata": metadata} if metadata else {}),
        )
    )
    lost["the assignee"] += bool(text_of(row, "assignee")) and status not in _DONE
    for child in children:
        _read_task(found, child, name, lost)


def _full(name: str, parent: str) -> str:
    """A subtask names its neighbours by their bare number."""
    return f"{parent}.{name}" if parent and "." not in name else name
