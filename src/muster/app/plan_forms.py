"""A plan's file as it is merged, as git keeps it, and as it lies in the folder: line ends, `ident`, filters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from io import BytesIO
from typing import NamedTuple

from muster.hosts.user_git import UserGit, said
from muster.model.errors import MusterError

# It only asks, so whoever wants to be warned of line ends that change is warned by git itself.
_HASH = ("-c", "core.safecrlf=false", "hash-object")
_CRLF = b"\r\n"


class PlanForm(NamedTuple):
    """It is merged as git keeps it; what a filter makes of it only git can read, so then as it lies."""

    git: UserGit
    path: str
    filtered: bool

    def of_blob(self, blob: bytes) -> bytes:
        """What is merged, of what git keeps."""
        return self._smudged(blob) if self.filtered and blob else blob

    def of_folder(self, data: bytes, blob: bytes) -> bytes:
        """What is merged, of what lies in the folder; `blob` is what is committed."""
        kept = self._cleaned(data, blob)
        if not self.filtered:
            return kept
        return self._smudged(blob) if kept == blob else data

    def to_blob(self, text: bytes, blob: bytes) -> bytes:
        """The other way; `blob` is what is committed."""
        return self._cleaned(text, blob) if self.filtered else text

    def to_folder(self, text: bytes, data: bytes, known: bytes) -> bytes:
        """What is to lie there in the place of `data`, of which `known` is merged.

        Lines that stay are not touched: an editor may have given them other ends than git would.
        """
        if data == known:
            return text
        shown = text if self.filtered else self._smudged(text)
        old, new, here, other = map(_lines, (known, text, data, shown))
        if len(old) != len(here) or len(new) != len(other):
            return shown
        end = _CRLF if 2 * sum(line.endswith(_CRLF) for line in here) > len(here) else b"\n"
        made = b"".join(_mixed(old, new, here, [_ended(line, end) for line in other]))
        return made if self.filtered or self._cleaned(made, known) == text else shown

    def _cleaned(self, data: bytes, blob: bytes) -> bytes:
        asked = (f"--path={self.path}", "--stdin")
        name = self.git.run(*_HASH, *asked, given=data)
        if name == _name_of(data, len(name)):
            return data
        found = self.git.ask("cat-file", "blob", self.git.run(*_HASH, "-w", *asked, given=data)).stdout
        # Asked for a hash git knows no index, in which line ends that it has to guess about stay as they are.
        return _with_ends_of(data, found) if _CRLF in blob and self._guesses() else found

    def _smudged(self, blob: bytes) -> bytes:
        name = self.git.run("hash-object", "-w", "--stdin", given=blob)
        done = self.git.ask("cat-file", "--filters", f"--path={self.path}", name)
        if done.returncode:
            raise MusterError(f"git cat-file failed: {said(done)}", "try it by hand")
        return done.stdout

    def _guesses(self) -> bool:
        """No attribute says that the file is text."""
        text, eol = _attributes(self.git, self.path, "text", "eol")
        return text == "auto" or (text == "unspecified" and eol == "unspecified")


def form_of(git: UserGit, path: str) -> PlanForm:
    (driver,) = _attributes(git, path, "filter")
    return PlanForm(git, path, driver not in {"unspecified", "unset"})


def _attributes(git: UserGit, path: str, *names: str) -> list[str]:
    return git.run("check-attr", "-z", *names, "--", path).split("\0")[2::3]


def _mixed(old: list[bytes], new: list[bytes], here: list[bytes], shown: list[bytes]) -> Iterator[bytes]:
    for what, i, k, j, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        yield from here[i:k] if what == "equal" else shown[j:m]


def _with_ends_of(data: bytes, found: bytes) -> bytes:
    lines, others = _lines(found), _lines(data)
    if len(lines) != len(others):
        return found
    pairs: Iterable[tuple[bytes, bytes]] = zip(lines, others, strict=True)
    return b"".join(_ended(line, _CRLF if other.endswith(_CRLF) else b"\n") for line, other in pairs)


def _ended(line: bytes, end: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r") + end if line.endswith(b"\n") else line


def _lines(data: bytes) -> list[bytes]:
    """With their ends."""
    return BytesIO(data).readlines()


def _name_of(data: bytes, chars: int) -> str:
    """As git calls this content."""
    algorithm = hashlib.sha1 if chars == 40 else hashlib.sha256
    return algorithm(b"blob %d\0" % len(data) + data).hexdigest()
