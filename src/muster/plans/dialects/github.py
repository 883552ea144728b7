"""Task lists of GitHub issues and pull requests."""

from __future__ import annotations

import re

from muster.plans.dialects.base import Dialect, Parts
from muster.plans.dialects.top import FileTop

_REFERENCE = re.compile(
    r"(?:[\w.-]+/[\w.-]+)?#\d+|GH-\d+|https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+(?:#\S*)?"
)
_STRUCK = re.compile(r"~~.+~~")
_OPTIONAL = re.compile(r"\s*[(\[]optional[)\]]\s*", re.IGNORECASE)


class GitHubList(Dialect):
    name = "github"
    says = "#740 alone is a reference to an issue; what is ~~struck~~ is left out"

    def recognise(self, top: FileTop) -> str:
        references = sum(1 for title in top.titles if _REFERENCE.fullmatch(title.strip()))
        struck = sum(1 for title in top.titles if _STRUCK.fullmatch(title.strip()))
        if references:
            return "it has boxes that are references like #740"
        return "it has ~~struck~~ boxes" if struck else ""

    def read_title(self, text: str) -> Parts:
        title = text.strip()
        if _REFERENCE.fullmatch(title):
            doubt = f"{title} is only a reference: say what is to be done, or `muster plan import` the issue"
            return Parts(title, doubt=doubt)
        optional = _OPTIONAL.search(title)
        fields = {"tags": ("optional",)} if optional else {}
        return Parts(title, skip=bool(_STRUCK.fullmatch(title)), fields=fields)
