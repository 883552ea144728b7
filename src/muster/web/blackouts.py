"""What agents say themselves, without the secrets of their workspace."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

from muster.model.blackout import Blackout
from muster.model.errors import StoreRefused
from muster.model.secrets import secret_purpose
from muster.web.backend import Backend


async def blackout_of(web: Backend) -> Blackout:
    """Of all that are set now, whoever was given them."""
    values = []
    for name, sealed in (await web.reads.sealed_secrets()).items():
        with contextlib.suppress(StoreRefused):  # nobody is given what cannot be opened
            values.append(_value(web.owner.vault.unseal, sealed, secret_purpose(web.workspace_id, name)))
    return _made(tuple(values))


@functools.lru_cache(maxsize=1000)
def _value(unseal: Callable[[str, str], str], sealed: str, purpose: str) -> str:
    """Raises StoreRefused, which is not kept: the key may come back."""
    return unseal(sealed, purpose)


@functools.lru_cache(maxsize=64)
def _made(values: tuple[str, ...]) -> Blackout:
    return Blackout(values)
