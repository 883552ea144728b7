"""What new tasks and plans may be called: people type these names again, in commands and addresses.

What is there already keeps the name that it has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from muster.model.commands import Spec
from muster.model.errors import BadInput

_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]|^\s|\s$")
"""Control characters, all that ends a line, and white space at either end."""
_NO_ADDRESS = frozenset({".", ".."})
"""Browsers leave these out of an address."""


def refuse_unfit(plan: str | None, fresh: Mapping[int, Spec]) -> None:
    """Raises BadInput.  `plan`: its name, where it is new; `fresh`: new tasks by their places in the command."""
    if plan is not None:
        _refuse("a plan's name", plan, "/plan")
        if plan in _NO_ADDRESS:
            raise _bad(f"no plan can be called {plan!r}: its page would have no address", "/plan")
    for at, spec in fresh.items():
        if spec.key is not None:
            _refuse("a task's key", spec.key, f"/tasks/{at}/key")
        refuse_unfit_tags(spec.tags, f"/tasks/{at}/tags")


def refuse_unfit_tags(tags: Iterable[str], pointer: str) -> None:
    """Raises BadInput."""
    for tag in tags:
        _refuse("a tag", tag, pointer)


def _refuse(what: str, name: str, pointer: str) -> None:
    if _UNFIT.search(name):
        raise _bad(
            f"{what} has no line breaks or other control characters, and no white space at its ends; "
            f"this one is {name[:100]!r}",
            pointer,
        )


def _bad(told: str, pointer: str) -> BadInput:
    error = BadInput(f"{told}; nothing was changed", "leave them out, or use - in their place")
    error.pointer = pointer
    return error
