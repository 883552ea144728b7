"""What agents say themselves, without the secrets of their workspace."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

from muster.model.blackout import Blackout
from muster.model.errors import StoreRefused
from muster.model.secrets import secret_purpose
from muster.web.backend import Backend

Sealed = tuple[tuple[str, str], ...]
"""By name."""


async def blackout_of(web: Backend) -> Blackout:
    """Of all that are set now, whoever was given them."""
    sealed = await web.reads.sealed_secrets()
    return _opened(web.owner.vault.unseal, web.workspace_id, tuple(sealed.items()))


@functools.lru_cache(maxsize=64)
def _opened(unseal: Callable[[str, str], str], workspace_id: int, sealed: Sealed) -> Blackout:
    values = []
    for name, text in sealed:
        with contextlib.suppress(StoreRefused):  # nobody was given what cannot be opened
            values.append(unseal(text, secret_purpose(workspace_id, name)))
    return Blackout(values)
