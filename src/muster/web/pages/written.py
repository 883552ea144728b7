"""What somebody has typed into a form that was not taken: the page that says so gives it back.

It goes from the request to that page, and nowhere else.  What forms carry unseen is not typed, a token is a
secret, and a form of another site's says nothing here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from muster.model.errors import BadInput, Forbidden
from muster.model.forms import PLAN_ACTIONS, SEEN_MERGE, SEEN_PULL, TASK_ACTIONS
from muster.web.http import SMALL_BYTES_MAX, Request
from muster.web.open_paths import ENTER
from muster.web.visits import fields_of, refuse_other_sites

NOT_TYPED = frozenset(
    {
        *("csrf", "back", "seq", "seen", "once", "asked", "head", "id", "ids", "do", "at", "to", "theme"),
        *("allow", "always", "fresh", "role"),
        *SEEN_MERGE,
        *SEEN_PULL,
    }
)
"""Fields that are not seen, or that are chosen."""
_LABELS = {
    **{field.name: field.label for one in TASK_ACTIONS.values() for field in one.fields},
    **{field.name: field.label for one in PLAN_ACTIONS.values() for field in one.fields},
    "new": "A comment that was not added yet",
    "words": "Of all of it",
}
_REMARK = re.compile(r"text\.(\d{1,6})([+-])(\d{1,9})")
_SIDES = {"+": "", "-": " that was taken out"}


class TypedText(NamedTuple):
    label: str
    text: str


def written_in(request: Request) -> list[TypedText]:
    """Of a larger body than any form has, nothing: nobody typed that."""
    if request.method == "GET" or request.path == ENTER or len(request.body or b"") > SMALL_BYTES_MAX:
        return []
    try:
        refuse_other_sites(request)
        fields = fields_of(request)
    except (BadInput, Forbidden):
        return []
    return [
        TypedText(_label(name), text)
        for name, text in fields.items()
        if name not in NOT_TYPED and text.strip()
    ]


def _label(name: str) -> str:
    if found := _REMARK.fullmatch(name):
        return f"On line {found[3]}{_SIDES[found[2]]}, in file {int(found[1]) + 1} of the list"
    return _LABELS.get(name, name)
