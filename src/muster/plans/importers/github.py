"""GitHub issues as `gh issue list --json ...` or the REST API gives them."""

from __future__ import annotations

import re
from collections import Counter

from muster.model.wording import counted

from .source import Item, Reading, ToolFiles, Value, list_of, priority_of, sections, text_of

NAME = "github"
_NOT_DONE = {"NOT_PLANNED": "it was closed as not planned", "DUPLICATE": "it was closed as a duplicate"}
_PRIORITY = re.compile(r"(?:prio(?:rity)?[\s:/_-]*)?(P[0-2]|critical|urgent|high|low)", re.IGNORECASE)
_REPOSITORY = re.compile(r"https?://[^/]+/(?:repos/)?([^/]+/[^/]+)/issues/")
WANTED = "number,title,body,state,stateReason,labels,milestone,parent,blockedBy,url"
"""What `gh` is to be asked for."""


def recognise(source: ToolFiles) -> str:
    rows = _rows(source)
    if rows and all(text_of(row, "number").isdigit() and text_of(row, "title") for row in rows):
        return "issues with number and title"
    return ""


def read(source: ToolFiles) -> Reading:
    rows = [row for row in _rows(source) if "pull_request" not in row]
    repositories = {match[1] for row in rows if (match := _REPOSITORY.match(text_of(row, "html_url", "url")))}
    found = Reading(f"{repositories.pop()} issues" if len(repositories) == 1 else "Issues")
    if pulls := len(_rows(source)) - len(rows):
        found.lost.append(f"{counted(pulls, 'pull request')} left out: only issues are tasks")
    if rows and not any("body" in row for row in rows):
        found.lost.append(f"they have no body: gh issue list --json {WANTED}")
    lost: Counter[str] = Counter()
    left_out: set[str] = set()
    for row in rows:
        reason = _NOT_DONE.get(text_of(row, "stateReason", "state_reason").upper())
        if reason and _closed(row):
            found.leave_out(f"#{text_of(row, 'number')} {text_of(row, 'title')}", reason)
            left_out.add(text_of(row, "number"))
    kept = [row for row in rows if text_of(row, "number") not in left_out]
    parents = _parents(kept)
    numbers = {text_of(row, "number") for row in kept}
    for row in kept:
        # What was closed elsewhere is done, and holds nothing up.
        after = [
            text_of(other, "number")
            for other in list_of(row, "blockedBy")
            if text_of(other, "number") in numbers or not _closed(other)
        ]
        _read_issue(found, row, parents, after)
        if _closed(row):
            continue
        lost["the assignees"] += bool(list_of(row, "assignees"))
        lost["the comments"] += bool(isinstance(row.get("comments"), list) and row["comments"])
    found.items.sort(key=lambda item: int(item.id))
    found.count_lost(lost)
    return found


def texts(source: ToolFiles) -> str:
    """What people have written in these issues; empty where they are none."""
    return "\n\n".join(
        sections({"": f"# {text_of(row, 'title')}", " ": text_of(row, "body")} | _comments(row))
        for row in _rows(source)
        if text_of(row, "title")
    )


def _comments(row: Value) -> dict[str, str]:
    found = row.get("comments")
    return {
        f"Comment {number} of {text_of(said.get('author'), 'login') or 'somebody'}": text_of(said, "body")
        for number, said in enumerate(found if isinstance(found, list) else [], 1)
        if isinstance(said, dict)
    }


def _rows(source: ToolFiles) -> list[Value]:
    """A list of issues, one issue, or one a line (`--jq '.[]'`)."""
    found = source.json if isinstance(source.json, list) else source.rows
    if isinstance(source.json, dict):
        found = [source.json]
    return found if all(isinstance(row, dict) for row in found) else []


def _closed(row: Value) -> bool:
    return text_of(row, "state").upper() == "CLOSED" or row.get("closed") is True


def _parents(rows: list[Value]) -> dict[str, str]:
    found = {
        text_of(child, "number"): text_of(row, "number")
        for row in rows
        for child in list_of(row, "subIssues")
    }
    found |= {
        text_of(row, "number"): text_of(row.get("parent"), "number") for row in rows if row.get("parent")
    }
    there = {text_of(row, "number") for row in rows}
    return {child: parent for child, parent in found.items() if {child, parent} <= there}


def _read_issue(found: Reading, row: Value, parents: dict[str, str], after: list[str]) -> None:
    number = text_of(row, "number")
    labels = [label if isinstance(label, str) else text_of(label, "name") for label in list_of(row, "labels")]
    priorities = [match[1] for label in labels if (match := _PRIORITY.fullmatch(label))]
    url = text_of(row, "html_url", "url")
    group = number in parents.values()
    fields = priority_of(priorities[0]) if priorities else {}
    fields |= {"tags": tuple(labels)} if labels else {}
    found.items.append(
        Item(
            id=number,
            title=text_of(row, "title"),
            text=sections({"": text_of(row, "body")} | ({} if group or not url else {"Issue": url})),
            done=_closed(row),
            after=after,
            parent=parents.get(number, ""),
            group=group,
            epic=text_of(row.get("milestone"), "title"),
            fields=fields,
        )
    )
