"""The service manager that has started this process, told how it is doing: systemd's `Type=notify`.

The protocol is a line of text in a datagram (sd_notify(3)).  The packages that speak it are no longer kept
(sdnotify), or bind libsystemd (systemd-python), which a container has not.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress

SHORT_S = 1.0
"""How long a manager that does not read may hold us up."""


class ServiceManager:
    """Without one nothing is told, and nobody has to ask whether there is."""

    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        self._address = address
        self.watchdog_s = watchdog_s
        """It ends a service that it has not heard of for so long."""
        self._pinged_s = time.monotonic()

    @classmethod
    def taken_from(cls, env: MutableMapping[str, str]) -> ServiceManager:
        """What it has left in `env` is for this process alone: the ones that it starts are not to find it."""
        address = env.pop("NOTIFY_SOCKET", "")
        watchdog_us, pid = env.pop("WATCHDOG_USEC", ""), env.pop("WATCHDOG_PID", "")
        ours = watchdog_us.isdecimal() and pid in ("", str(os.getpid()))
        return cls(address, int(watchdog_us) / 1e6 if ours else None)

    def __bool__(self) -> bool:
        return bool(self._address)

    def tell(self, *words: str) -> None:
        if not self:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        # A manager that has gone, or does not listen, is no reason to end: it finds us by our pid.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.settimeout(SHORT_S)
            channel.sendto("\n".join(words).encode(), address)

    def ready(self, status: str = "") -> None:
        self.tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """`ready` follows."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, status: str) -> None:
        self.tell("STOPPING=1", f"STATUS={status}")

    def not_yet(self, status: str, more_s: float) -> None:
        """Ready, that is, and not for `more_s` either: that alone is no failure."""
        self.tell(f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={more_s * 1e6:.0f}")

    def ping(self) -> None:
        """As often as it wants to hear of us, however often this is called."""
        now_s = time.monotonic()
        if self.watchdog_s is not None and now_s - self._pinged_s >= self.watchdog_s / 4:
            self._pinged_s = now_s
            self.tell("WATCHDOG=1")
