"""Letta Code's folder of local conversations, of which it reads all at each start, whichever it is to go on with.

It writes its files in place.  One that a kill has cut off ends every later start with an error, of new
conversations as well, until it is out of the way.
"""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path

from muster.hosts.plain_files import read_part, replace_plain

WRITING_S = 1.0
"""How long a file may look cut off because somebody is writing it."""
_LOOK_S = 0.05
_CONVERSATION, _MESSAGES, _MANIFEST = "conversation.json", "messages.jsonl", "manifest.json"
_PROMPT = "system-prompt.json"
"""Can be missing: it is made again from what its agent is."""
_STORY = (_CONVERSATION, _MESSAGES, _MANIFEST)
_ASIDE = ".cut-off"

log = logging.getLogger(__name__)


def holds(store: Path, session_key: str) -> bool:
    """Whether this conversation can be gone on with: it is there, and none of its files is cut off."""
    folder = _folder(store, session_key)
    return all((folder / name).is_file() for name in _STORY) and not any(
        _is_cut_off(folder / name) for name in _STORY
    )


def set_aside_what_is_cut_off(store: Path) -> None:
    """Renames it: the CLI can start again, and nothing is lost for who wants to look.  Raises OSError."""
    until_s = time.monotonic() + WRITING_S
    while cut := [*_cut_off(store)]:
        if time.monotonic() >= until_s:
            break
        time.sleep(_LOOK_S)
    for path in cut:
        log.warning(
            "letta cannot start with %s, which is cut off: it is called %s now", path, path.name + _ASIDE
        )
        _set_aside(path)
        if path.name in _STORY:
            # Without its messages no conversation needs a manifest, and none is taken for a whole one.
            _set_aside(path.with_name(_MESSAGES))
        if path.name == _CONVERSATION:
            _keep_its_name(path)


def _folder(store: Path, session_key: str) -> Path:
    name = base64.urlsafe_b64encode(f"conversation:{session_key}".encode()).decode().rstrip("=")
    return store / "conversations" / name


def _cut_off(store: Path) -> Iterator[Path]:
    files = [*store.glob("agents/*.json")]
    for folder in store.glob("conversations/*"):
        files += (folder / name for name in (*_STORY, _PROMPT))
    return filter(_is_cut_off, files)


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


def _set_aside(path: Path) -> None:
    try:
        path.replace(path.with_name(path.name + _ASIDE))
    except FileNotFoundError:  # another worker was faster, or there is none
        return


def _keep_its_name(path: Path) -> None:
    """Numbers go on from the highest that is there: the next conversation would be called like this one."""
    name = path.parent.name
    kind, _, key = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode().partition(":")
    if kind == "conversation":
        empty = {"id": key, "agent_id": "cut-off", "archived": True, "in_context_message_ids": []}
        replace_plain(path, json.dumps(empty, indent=2).encode() + b"\n")
