"""Servers that a person has logged in to, and which of them is meant; in a file of the user's own.

Commands import this module: nothing here may be slow to import.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import contextmanager

from muster.model.errors import BadConfig, NotAllowed, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SERVER, CONTEXT = "MUSTER_SERVER", "MUSTER_CONTEXT"
TOKEN, TOKEN_FILE = "MUSTER_TOKEN", "MUSTER_TOKEN_FILE"
_FOR_OTHERS = 0o077
_FILE_BYTES_MAX = 1 << 20


class KnownServer:
    """Where a server is, and what proves to it who asks."""

    __slots__ = ("attempt", "ca", "named", "token", "url")

    def __init__(self, url: str, token: str = "", ca: str = "", *, named: str = "") -> None:
        self.url = ",".join(one.strip().rstrip("/") for one in url.split(","))
        """Of a store that several servers share, those of all of them, with commas between."""
        self.token = token
        self.ca = ca
        """The file with the certificates that are trusted; empty: those that this machine trusts."""
        self.named = named
        """Who says that it is meant: an option, a variable or a context."""
        self.attempt = ""
        """`TASK/EPOCH` of whom the token is, inside of a task."""


class SavedContexts:
    """What `muster login` has kept, by name."""

    def __init__(self, path: str, servers: dict[str, KnownServer], current: str) -> None:
        self.path = path
        self.servers = servers
        self.current = current

    @classmethod
    def of(cls, env: Mapping[str, str]) -> SavedContexts:
        """Raises BadConfig for a file that cannot be read, NotAllowed for one that others can read."""
        path = file_of(env)
        text = _private_text(path, missing="{}")
        try:
            told = json.loads(text)
            servers = {
                name: KnownServer(one["server"], one["token"], one["ca"], named=f"context {name}")
                for name, one in told.get("contexts", {}).items()
            }
            return cls(path, servers, told.get("current", ""))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise BadConfig(
                f"{path} is not as `muster login` writes it", f"rm {path}, then muster login"
            ) from None

    @classmethod
    @contextmanager
    def change(cls, env: Mapping[str, str]) -> Iterator[SavedContexts]:
        """Saved when the block ends well: what other commands change meanwhile comes before it, or after.

        Raises as `of`, and BadConfig where nothing can be kept there.
        """
        import fcntl

        folder = os.path.dirname(file_of(env))
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _unwritable(file_of(env), error) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            saved = cls.of(env)
            yield saved
            saved._save()
        finally:
            os.close(lock)

    def named(self, name: str) -> KnownServer:
        """Raises NotFound."""
        if name not in self.servers:
            known = ", ".join(sorted(self.servers)) or "none"
            raise NotFound(
                f"there is no context {name!r}; there is {known}", "muster context list, muster login URL"
            )
        return self.servers[name]

    def _save(self) -> None:
        from pathlib import Path

        from muster.hosts.plain_files import replace_plain

        rows = {
            name: {"server": one.url, "token": one.token, "ca": one.ca}
            for name, one in sorted(self.servers.items())
        }
        told = {"current": self.current, "contexts": rows}
        try:
            replace_plain(Path(self.path), json.dumps(told, indent=1).encode() + b"\n", lasting=True)
        except OSError as error:
            raise _unwritable(self.path, error) from None


def file_of(env: Mapping[str, str]) -> str:
    folder = env.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(folder):
        folder = os.path.join(env.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(folder, "muster", "contexts.json")


def server_in(
    env: Mapping[str, str], *, url: str = "", context: str = "", here: bool = False
) -> KnownServer | None:
    """The server that is meant; None: none is, and a folder may be.

    `url` and `context` were said on the command line, `here` says that a folder was.  The first one counts of:
    these, MUSTER_SERVER, MUSTER_CONTEXT.  Raises as `SavedContexts`.
    """
    if url:
        return _at(env, url, "--server")
    if context:
        return SavedContexts.of(env).named(context)
    inside = env.get("MUSTER_SOCKET") and not env.get("MUSTER_BY_HAND")
    if here or inside:  # the processes of a task are of its own project
        return None
    if url := env.get(SERVER, ""):
        return _at(env, url, SERVER)
    if context := env.get(CONTEXT, ""):
        return SavedContexts.of(env).named(context)
    return None


def current_server(env: Mapping[str, str]) -> KnownServer | None:
    """That of the context in use, for who is in no project's folder."""
    if env.get("MUSTER_SOCKET") or not os.path.exists(file_of(env)):
        return None
    saved = SavedContexts.of(env)
    return saved.named(saved.current) if saved.current else None


def _at(env: Mapping[str, str], url: str, named: str) -> KnownServer:
    """With the token that the environment has for it, else the one of a context with this address."""
    found = KnownServer(url, named=named)
    saved = SavedContexts.of(env).servers.values() if os.path.exists(file_of(env)) else ()
    urls = set(found.url.split(","))
    kept = next((one for one in saved if urls <= set(one.url.split(","))), found)
    found.ca = kept.ca
    of_attempt = env.get("MUSTER_TASK_ID") and env.get("MUSTER_EPOCH")
    if of_attempt and not (env.get("MUSTER_BY_HAND") and kept.token):
        found.attempt = f"{env['MUSTER_TASK_ID']}/{env['MUSTER_EPOCH']}"
        found.token = env.get(TOKEN, "")
    elif path := env.get(TOKEN_FILE, ""):
        found.token = _private_text(path).strip()
    else:
        found.token = kept.token if of_attempt else env.get(TOKEN, "") or kept.token
    if not (found.token.isascii() and (found.token.isprintable() and " " not in found.token)):
        raise BadConfig(f"the token for {found.url} is not one; nothing was sent", "muster login URL")
    return found


def _private_text(path: str, missing: str | None = None) -> str:
    """Raises NotAllowed for a file that others can read, BadConfig for one that cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & _FOR_OTHERS:
                raise NotAllowed(
                    f"{path} can be read by others, so its tokens are not used", f"chmod 600 {path}"
                )
            return file.read(_FILE_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError):
        if missing is not None:
            return missing
        raise BadConfig(
            f"{path}: there is no such file", f"write the token into it, and chmod 600 {path}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path} cannot be read: {error}", "make it a file that you can read") from None


def _unwritable(path: str, error: OSError) -> BadConfig:
    return BadConfig(
        f"{path} cannot be written: {error.strerror}; nothing was changed",
        "let XDG_CONFIG_HOME name a folder where you can write, or mend this one",
    )
