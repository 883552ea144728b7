"""Requests whose answers may get lost, and knowing whether they did."""

from __future__ import annotations

import http.client
import json
import socket
import time
from pathlib import Path
from typing import Any

from muster.client.http import address

REPLY_S = 20.0


class NotSent(Exception):
    """Nobody was there to take the request: it has no effect."""


class NoAnswer(Exception):
    """The request went out and no answer came: nobody knows."""


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("muster", timeout=REPLY_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(REPLY_S)
        with address(self._path) as reachable:
            self.sock.connect(reachable)


def send(path: Path, target: str, content: Any, *, hang_up_s: float | None = None) -> tuple[int, Any]:
    """(status, answer) of a POST on a connection of its own.  Raises NotSent and NoAnswer.

    With `hang_up_s` the connection is closed after that time without a look at the answer: always NoAnswer.
    """
    connection = _Unix(path)
    try:
        try:
            connection.connect()
        except OSError as error:
            raise NotSent(str(error)) from error
        try:
            body = json.dumps(content)
            connection.request("POST", target, body, {"Content-Type": "application/json"})
            if hang_up_s is not None:
                time.sleep(hang_up_s)
                raise NoAnswer("hung up on purpose")
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(repr(error)) from error
    finally:
        connection.close()
    return response.status, json.loads(data) if data else None
