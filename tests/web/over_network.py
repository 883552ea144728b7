"""What tests need that ask over TCP: a server that listens there, a connection to it, and tokens for it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from web_site import Site

from muster.app.network import bind
from muster.model.access import Role
from muster.web.app import build
from muster.web.gate import LOOPBACK_NAMES, Exposure, NetworkGate
from muster.web.network import NetworkListener
from patience import PATIENCE_S

OPENLY = Exposure(login=False, hosts=LOOPBACK_NAMES, rate=0)


class Line:
    """One connection over TCP."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket = tls.wrap_socket(plain, server_hostname="localhost") if tls else plain
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(
        self, method: str, target: str, body: bytes = b"", **headers: str
    ) -> tuple[int, dict[str, str], Any]:
        given = {"Host": "localhost", "Content-Length": str(len(body)), **headers}
        lines = [
            f"{method} {target} HTTP/1.1",
            *(f"{name}: {value}" for name, value in given.items()),
            "",
            "",
        ]
        self.send("\r\n".join(lines).encode() + body)
        return self.reply()

    def reply(self) -> tuple[int, dict[str, str], Any]:
        status = int(self._file.readline().split()[1])
        headers = {}
        while line := self._file.readline().strip():
            name, _, value = line.decode().partition(": ")
            headers[name] = value
        data = self._file.read(int(headers["content-length"]))
        return status, headers, json.loads(data) if data[:1] in {b"{", b"["} else data

    def is_closed(self) -> bool:
        try:
            return self._file.read() == b""
        except ConnectionError:
            return True


@contextmanager
def listening(site: Site, exposure: Exposure, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port."""
    (at,) = bind("127.0.0.1:0")

    async def serve() -> None:
        await NetworkListener(NetworkGate(build(site.backend), site.backend, exposure)).serve(
            at, site.backend.closing, tls
        )

    running = asyncio.run_coroutine_threadsafe(serve(), site._loop)
    try:
        yield at.getsockname()[1]
    finally:
        site.shut_down()
        if not running.cancelled():
            running.result(PATIENCE_S)
        at.close()


class People:
    """Members, tokens and a second workspace over the socket of who runs it."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def post(self, path: str, workspace: str = "default", **body: Any) -> Any:
        data = json.dumps({"actor": "root", **body}).encode()
        status, answer = self.site.send("POST", path, data, {"Muster-Workspace": workspace})
        assert status < 300, answer
        return answer

    def token(self, role: Role, workspace: str = "default", *, member: str = "", **more: Any) -> str:
        member = member or f"{role.lower()}1"
        self.post("/api/v1/members", workspace, name=member, role=role)
        found: str = self.post("/api/v1/tokens", workspace, name="t", member=member, role=role, **more)[
            "token"
        ]
        return found


def ask(port: int, method: str, path: str, token: str, body: Any = None) -> tuple[int, Any]:
    with Line(port) as line:
        data = b"" if body is None else json.dumps(body).encode()
        status, _, told = line.ask(method, path, data, Authorization=f"Bearer {token}")
        return status, told
