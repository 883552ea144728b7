"""What agents say themselves, without the secrets of their workspace."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection

import msgspec

from muster.model.blackout import Blackout
from muster.model.errors import StoreRefused
from muster.model.input_secrets import input_purpose
from muster.model.secrets import secret_purpose
from muster.web.backend import Backend


async def blackout_of(web: Backend, task_ids: Collection[int] = ()) -> Blackout:
    """Of all that are set now, whoever was given them, and of those in the input contexts of these tasks."""
    values = []
    for name, sealed in (await web.reads.sealed_secrets()).items():
        with contextlib.suppress(StoreRefused):  # nobody is given what cannot be opened
            values.append(_opened(web.owner.vault.unseal, sealed, secret_purpose(web.workspace_id, name)))
    for task_id in task_ids:
        with contextlib.suppress(StoreRefused):
            values += opened_inputs(web, task_id, await web.reads.sealed_input(task_id)).values()
    return _made(tuple(values))


def opened_inputs(web: Backend, task_id: int, sealed: str) -> dict[str, str]:
    """The secrets of a task's input context, by JSON pointer.  Raises StoreRefused."""
    if not sealed:
        return {}
    text = _opened(web.owner.vault.unseal, sealed, input_purpose(web.workspace_id, task_id))
    return msgspec.json.decode(text, type=dict[str, str])


@functools.lru_cache(maxsize=1000)
def _opened(unseal: Callable[[str, str], str], sealed: str, purpose: str) -> str:
    """Raises StoreRefused, which is not kept: the key may come back."""
    return unseal(sealed, purpose)


@functools.lru_cache(maxsize=64)
def _made(values: tuple[str, ...]) -> Blackout:
    return Blackout(values)
