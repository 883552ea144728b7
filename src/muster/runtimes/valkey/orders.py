"""What servers say to each other: commands in `coordinator:commands:WORKSPACE`, as JSON.

`wake` is Muster's own; by `reassign_task` and `recover_task` other programs may ask for a look as well.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from muster.ports.runtime import RECOVERY

BYTES_MAX = 64 << 10
"""Of one message; a longer one is nobody's of ours."""
TOPICS_MAX = 500
"""In one message."""
WAKE, RECOVER = "wake", "recover_task"
_LOOKS = frozenset({RECOVER, "reassign_task"})


class CoordinatorOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    command: str
    server: str = ""
    """Who says it."""
    topics: tuple[str, ...] = ()
    task_id: Any = None
    """Whoever looks, looks at all."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(CoordinatorOrder).decode


def wake_order(server: str, topics: Collection[str]) -> bytes:
    return _encode(CoordinatorOrder(WAKE, server, tuple(topics)))


def recover_order(server: str, task_id: int | None) -> bytes:
    return _encode(CoordinatorOrder(RECOVER, server, task_id=task_id))


def topics_in(message: Any, server: str) -> tuple[str, ...]:
    """Whom it wakes here: nobody where it cannot be read, or where this server has said it itself."""
    if not isinstance(message, bytes) or len(message) > BYTES_MAX:
        return ()
    try:
        order = _decode(message)
    except msgspec.MsgspecError:
        return ()
    if order.server == server:
        return ()
    return order.topics[:TOPICS_MAX] if order.command == WAKE else (RECOVERY,) * (order.command in _LOOKS)
