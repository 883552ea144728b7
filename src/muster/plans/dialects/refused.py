"""Files of other tools that top like plans and are none: what is to be done with them is said."""

from __future__ import annotations

import re

from muster.plans.dialects.base import Dialect
from muster.plans.dialects.top import FileTop


class BacklogTask(Dialect):
    name = "backlog.md"
    refusal = "this is one task of Backlog.md, and its boxes are what has to hold before it is done"
    instead = (
        "muster plan import backlog reads the whole folder; `dialect: none` at its top reads this one file"
    )

    def recognise(self, top: FileTop) -> str:
        keys = {line.partition(":")[0] for line in top.matter}
        if {"id", "title", "status"} <= keys and top.headed(re.compile("Acceptance Criteria|Description")):
            return "it has id, title and status at its top"
        return ""


class OrgMode(Dialect):
    name = "org"
    refusal = "this is an org-mode file, and a plan is markdown"
    instead = "`pandoc -f org -t gfm FILE` turns its headings and boxes into markdown"

    def recognise(self, top: FileTop) -> str:
        return "it is an .org file" if top.path.endswith(".org") else ""


class ToolData(Dialect):
    name = "json"
    refusal = "this is data of another program, and a plan is markdown"
    instead = "muster plan import FILE writes it as a plan file"

    def recognise(self, top: FileTop) -> str:
        return "it is a .json file" if top.path.endswith((".json", ".jsonl")) else ""
