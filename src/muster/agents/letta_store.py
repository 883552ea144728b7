"""Letta Code's folders of local conversations: each task that begins one gets a folder of its own.

In one that is shared it numbers conversations by what it sees there, so that two which start at a time take the
same number and write into one; it reads all of them at each start; and it writes in place, so that one file which
a kill has cut off ends every later start, of new conversations as well (0.25.9).
"""

from __future__ import annotations

import base64
import contextlib
import json
from pathlib import Path

from muster.hosts.plain_files import read_part

_OWN = "muster"
"""Below the user's folder."""
_MESSAGES = "messages.jsonl"
_FILES = ("conversation.json", _MESSAGES, "manifest.json", "system-prompt.json")
_PROVIDERS = "providers"
"""What the user has connected it to."""
_AT = "@"


def begin(usual: Path, name: str) -> Path:
    """A folder for one conversation, with the user's providers.  Raises OSError."""
    own = usual / _OWN / name
    own.mkdir(parents=True, exist_ok=True)
    if (usual / _PROVIDERS).is_dir():
        with contextlib.suppress(FileExistsError):
            (own / _PROVIDERS).symlink_to(usual / _PROVIDERS)
    return own


def key_of(conversation: str, folder: Path) -> str:
    """Of a conversation in that folder: says where it is."""
    return f"{conversation}{_AT}{folder.name}" if folder.parent.name == _OWN else conversation


def folder_of(usual: Path, session_key: str) -> Path:
    _, _, name = session_key.partition(_AT)
    return usual / _OWN / name if name else usual


def conversation_of(session_key: str) -> str:
    return session_key.partition(_AT)[0]


def holds(usual: Path, session_key: str) -> bool:
    """Whether this conversation can be gone on with: it is there, and nothing in its folder is cut off."""
    folder = folder_of(usual, session_key)
    kept = base64.urlsafe_b64encode(f"conversation:{conversation_of(session_key)}".encode()).decode()
    conversation = folder / "conversations" / kept.rstrip("=")
    files = [conversation / name for name in _FILES]
    return all(path.is_file() for path in files) and not any(
        map(_is_cut_off, [*files, *folder.glob("agents/*.json")])
    )


def _is_cut_off(path: Path) -> bool:
    """By its end, which is cheap; a file that ends in another way is read as a whole."""
    lines = path.name == _MESSAGES
    try:
        end = read_part(path, 3)
        if end.endswith(b"}\n" if lines else b"\n}\n") or (lines and end == b"\n"):
            return False
        data = path.read_bytes()
    except OSError:  # not there, or nothing that it would read
        return False
    try:
        if lines:
            return not data or not all(json.loads(line) for line in data.splitlines() if line.strip())
        json.loads(data)
    except (ValueError, RecursionError):
        return True
    return False
