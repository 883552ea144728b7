"""A peer that has gone without a word is noticed: its host is down, or what lies between has forgotten it."""

from __future__ import annotations

import socket


def end_when_unheard(found: socket.socket, idle_s: int, probe_s: int, probes: int) -> None:
    """The connection breaks once its peer has answered nothing, or taken nothing, for about that long together.

    Nothing for a socket of this machine's own files.
    """
    if found.family == socket.AF_UNIX:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in tcp_options(idle_s, probe_s, probes).items():
        found.setsockopt(socket.IPPROTO_TCP, option, value)


def tcp_options(idle_s: int, probe_s: int, probes: int) -> dict[int, int]:
    """By their numbers here: each system has some of them."""
    wanted = {
        "TCP_KEEPIDLE": idle_s,
        "TCP_KEEPINTVL": probe_s,
        "TCP_KEEPCNT": probes,
        "TCP_USER_TIMEOUT": 1000 * (idle_s + probe_s * probes),
    }
    return {
        option: value for name, value in wanted.items() if (option := getattr(socket, name, None)) is not None
    }
