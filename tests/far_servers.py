"""A server in a folder that no command is started in, asked over TCP."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli_owner import Owner
from muster.model import commands as c
from muster.model.access import Role
from muster.web.identity import hash_of

SECRET = "mst_of_ada"


class FarOwner(Owner):
    """A server in a folder that no command is started in."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.network = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.network.getsockname()[1]}"

    def token(self, secret: str, role: Role = Role.OWNER, expires_s: int | None = None) -> int:
        self.do(c.SetMember(name="ada", role=Role.OWNER, actor="user:ann"))
        made = c.AddToken(
            name=secret,
            member="ada",
            role=role,
            scopes=(),
            expires_s=expires_s,
            token_hash=hash_of(secret),
            actor="user:ann",
        )
        number: int = self.do(made).id
        return number


@contextmanager
def far_owner(folder: Path, tls: ssl.SSLContext | None = None) -> Iterator[FarOwner]:
    """Up, with `billing` as `Owner.seed` has it, and a token for whoever asks."""
    folder.mkdir()
    made = FarOwner(folder)
    made.tls = tls
    made.start()
    made.seed()
    made.token(SECRET)
    yield made
    made.close()
    assert made.network is not None
    made.network.close()
