"""Plans that Claude Code writes: headings are steps in order, verification comes last."""

from __future__ import annotations

import re

from muster.plans.dialects.base import Dialect, Parts
from muster.plans.dialects.top import FileTop

_STEP = re.compile(r"(?:step|task|phase|part|milestone)\s+\d+\b", re.IGNORECASE)
_NUMBERED = re.compile(r"\d+[.)]\s+\S")
_FRAME = re.compile(
    r"(?:context|overview|goal|summary|approach|background|critical files|files to (?:modify|change|create)"
    r"|key files|implementation(?: (?:plan|steps|order))?|current state|design|architecture)\b",
    re.IGNORECASE,
)
_VERIFIED = re.compile(
    r"(?:verification|verify|testing|test plan|validation|success criteria)\b", re.IGNORECASE
)
_CODE = re.compile(r"(?:\*\*)?[A-Z]{1,6}-?\d{1,4}\b")
"""Ids of other tools."""
_BOLD_STEP = re.compile(r"\*\*(?:step|task)\s+\d+\s*[:.]?\s*(.*?)\*\*\s*:?\s*(.*)", re.IGNORECASE)


class ClaudeCode(Dialect):
    name = "claude-code"
    order = "file"
    says = "steps in order, verification last"

    def recognise(self, top: FileTop) -> str:
        if not top.titles or top.share(_CODE) > 0.5:
            return ""
        steps = top.headed(_STEP) + top.headed(_NUMBERED)
        frame, verified = top.headed(_FRAME), top.headed(_VERIFIED)
        if steps and top.count(_BOLD_STEP):
            return "it has headings like `Task 1` and boxes like **Step 1**"
        if verified and frame and (steps or frame > 1):
            return "it has headings for context, steps and verification"
        return ""

    def read_title(self, text: str) -> Parts:
        step = _BOLD_STEP.fullmatch(text)
        if not step:
            return Parts(text)
        return Parts(" ".join(filter(None, (step[1], step[2]))) or text)
