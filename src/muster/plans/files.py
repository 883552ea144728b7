"""Plans in the file system: reading them, and ticking their boxes while people edit them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from muster.model.edits import PlanDocument
from muster.model.errors import BadPlan
from muster.ports.files import Mark, PlanBytes

from .problems import Problems

PLAN_BYTES_MAX = 8 * 1024 * 1024
STALE_AFTER_S = 60
WRITER_PAUSE_S = 0.005
TRIES_MAX = 8
NAME_BYTES_MAX = 180

BUFFER_S = 30.0
"""So long after a tick, a version from before it is taken for the buffer of an editor."""
VERSIONS_MAX = 256
PLACES_MAX = 8
"""Plans whose boxes' places are kept."""

_TICK, _CLEAR = b"x "
_TICKED = b"xX"
_NOTHING = b"]"
"""At the place of a box that has nothing between its brackets."""
_IN_A_BOX = b" \txX-~/]"

LATER = "Nothing was lost; the tick is tried again later."

_DIGEST_CHARS = 16
_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)
_TEMP_TAIL = re.compile(r"[0-9a-f]{8}(?:\.part|-([0-9a-f]{16})-([0-9a-f]{16}))")

# One tick at a time in this process: two would take each other's version for an edit.
_ticking = threading.Lock()

T = TypeVar("T")
Moment = Literal["read", "exchange", "check"]


class Snapshot(NamedTuple):
    data: bytes
    status: os.stat_result
    written: bool
    """Some program has the file open for writing, so there may be more to come."""


def read_plan(path: Path, doubts: Problems | None = None) -> PlanDocument:
    """The plan in this file; `doubts` takes what looks odd in it.

    Raises BadPlan where it cannot be read, or with all that is wrong in it; `path` stands in errors as it is.
    """
    from . import markdown  # here: what reads no plan starts 30 ms earlier without all its expressions

    seen = _read(path, str(path))
    for _ in range(TRIES_MAX):
        if not seen.written:
            break
        # Half of a plan that is being saved looks like a plan from which tasks were removed.
        time.sleep(WRITER_PAUSE_S)
        seen = _read(path, str(path))
    return markdown.parse(markdown.decode(seen.data, str(path)), str(path), doubts)


class LocalPlanFiles:
    """Ticks plans on this host, and never overwrites an edit that is made meanwhile.

    Our version is written beside the plan and swapped with it in one step; what comes out is compared with
    what we had read.  An edit that slipped in between comes out too: it goes back into its place at once, and
    we start over.  A plan that somebody has open for writing is left alone until it is closed (Linux).

    The plan keeps its mode, owner, group and extended attributes; a symbolic link stays and its target is
    written; a hard link is parted from the file.

    Two edits around the same swap cannot both be the plan: the later one is, the earlier one is kept beside
    it as `<plan>.muster-kept-<random>`, and BadPlan says so.

    Not covered: a program that has looked up the plan's name before the swap and opens the file only after we
    have compared and removed it; one that reads our version in the moment before an edit that slipped in goes
    back, and later writes what it read; and where names cannot be swapped (neither Linux nor macOS, some
    network file systems), an edit in the moment between the last comparison and the replacement.

    A crash leaves `.<plan>.muster-<random>-<ours>-<read>`, named after the digests of our version and of the
    one that it was made from.  The next tick removes it when it is older than a minute and holds one of those
    two, or was never swapped (`.part`).  Anything else is an edit which nobody else has: it goes back into
    its place while the plan is still our version, and is kept beside it otherwise.
    """

    def __init__(
        self,
        now_s: Callable[[], float] = time.time,
        pause: Callable[[float], None] = time.sleep,
        *,
        folder: Path = Path(),
    ) -> None:
        """`now_s` is the wall clock, in seconds, that tells the ages of files; `pause` waits seconds; `folder` is
        where relative paths begin."""
        self._folder = folder
        self._now_s = now_s
        self._pause = pause
        self._places: dict[str, _Places] = {}
        self._made: dict[Mark, Mark] = {}
        """Versions of ours that were swapped in, each with the one that it was made from."""
        self._replaced: dict[str, float] = {}
        """Digests of versions that ours have replaced, and when."""

    def tick(self, path: str, keys: Collection[str], clear: Collection[str] = ()) -> frozenset[str]:
        """As ports.PlanFiles says.  Blocks for as long as the disk takes; raises nothing but BadPlan."""
        return self._change(path, "ticked", lambda data: self._marked(path, data, keys, clear))

    def _marked(
        self, path: str, data: bytes, keys: Collection[str], clear: Collection[str]
    ) -> tuple[bytes, frozenset[str]]:
        """Of a long plan it is dear to find the boxes: their places are kept until its text changes."""
        places = self._boxes(path, data)
        ours, found = bytearray(data), places.of.keys() & {*keys, *clear}
        for key in found:
            at = places.of[key]
            if key in clear and ours[at] in _TICKED:
                ours[at] = _CLEAR
            elif key not in clear and ours[at] not in _TICKED + _NOTHING:
                ours[at] = _TICK
        empty = [places.of[key] for key in found - {*clear} if ours[places.of[key]] == _NOTHING[0]]
        for at in sorted(empty, reverse=True):
            ours[at:at] = bytes([_TICK])
        new = bytes(ours)
        return new, frozenset(found)

    def _boxes(self, path: str, data: bytes) -> _Places:
        places = self._places.get(path)
        if places is None or not places.text or places.text != _text(data, places.of):
            from . import markdown

            of = markdown.boxes(data, path)
            places = self._places[path] = _Places(_text(data, of), of)
        while len(self._places) > PLACES_MAX:
            del self._places[next(iter(self._places))]
        return places

    def boxes(self, path: str) -> dict[str, bool]:
        """As ports.PlanFiles says."""
        return self._ticked(path, _read(_resolve(self._folder, path), path).data)[1]

    def _ticked(self, path: str, data: bytes) -> tuple[str, dict[str, bool]]:
        places = self._boxes(path, data)
        return places.text, {key: data[at] in _TICKED for key, at in places.of.items()}

    def glance(self, path: str, known: Mark | None) -> tuple[Mark | None, bool]:
        """As ports.PlanFiles says."""
        try:
            mark = now = _mark((self._folder / path).stat())
        except (OSError, ValueError, RuntimeError):
            return None, False
        while now != known and now in self._made:
            now = self._made[now]
        return mark, now == known

    def read(self, path: str) -> PlanBytes:
        """As ports.PlanFiles says."""
        seen = _read(_resolve(self._folder, path), path)
        replaced_s = self._replaced.get(_digest(seen.data))
        restored = replaced_s is not None and abs(self._now_s() - replaced_s) < BUFFER_S
        text, boxes = self._ticked(path, seen.data)
        return PlanBytes(seen.data, _mark(seen.status), seen.written, text, boxes, restored)

    def rewrite(self, path: str, edit: Callable[[bytes], bytes]) -> bytes:
        """What the plan holds now: what `edit` has made of what it held; that may be asked more than once."""
        return self._change(path, "written", lambda data: ((new := edit(data)), new))

    def _change(self, path: str, what: str, edit: Callable[[bytes], tuple[bytes, T]]) -> T:
        target = _resolve(self._folder, path)
        try:
            with _ticking, _directory(target, path) as directory_fd:
                self._clean(target, path)
                return self._edit(target, path, edit, directory_fd)
        except OSError as error:
            raise _cannot(path, what, error) from error

    def _at(self, moment: Moment, target: Path) -> None:
        """For tests: called before the file is read, before the swap, before its outcome is looked at."""

    def _exchange(self, one: Path, other: Path) -> bool:
        return exchange(one, other)

    def _edit(
        self, target: Path, path: str, edit: Callable[[bytes], tuple[bytes, T]], directory_fd: int
    ) -> T:
        for _ in range(TRIES_MAX):
            self._at("read", target)
            seen = _read(target, path)
            if seen.written:
                self._pause(WRITER_PAUSE_S)
                continue
            ours, told = edit(seen.data)
            if ours == seen.data:
                return told
            if self._install(target, path, ours, seen):
                os.fsync(directory_fd)
                return told
        raise BadPlan(f"{path}: another program keeps writing it", LATER)

    def _install(self, target: Path, path: str, ours: bytes, seen: Snapshot) -> bool:
        """Puts our version in the place of the one that was seen; False when the plan is another by now."""
        if not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, "it is write-protected")
        read = _digest(seen.data)
        temp = _write_temp(target, ours, seen)
        try:
            self._note(_mark(seen.status), _mark(temp.lstat()), read)
            # A cheap look, so that our version almost never stands where an edit has just been made.
            if _changed(seen.status, target.lstat()):
                return False
            self._at("exchange", target)
            if self._exchange(temp, target):
                self._at("check", target)
                return self._settle(temp, target, path)
            if _quiet_digest(target) != read:
                return False
            temp.replace(target)
            return True
        finally:
            # Also after an interruption at any point above.  Nothing is left to do when all went well.
            if os.path.lexists(temp):
                self._settle(temp, target, path)

    def _note(self, seen: Mark, ours: Mark, digest: str) -> None:
        self._made[ours] = seen
        self._replaced[digest] = self._now_s()
        for kept in (self._made, self._replaced):
            while len(kept) > VERSIONS_MAX:
                del kept[next(iter(kept))]  # type: ignore[arg-type]

    def _settle(self, temp: Path, target: Path, path: str) -> bool:
        """Removes `temp`, or gives back the edit that it holds.

        True when it held what our version was made from, so that our version is the plan now.  Raises BadPlan
        when an edit had to be kept beside the plan.
        """
        _, ours, read = temp.name.rsplit("-", 2)
        held = _quiet_digest(temp)
        if held in (ours, read):
            temp.unlink()
            return held == read
        if _quiet_digest(target) == ours and self._exchange(temp, target):
            if _quiet_digest(temp) == ours:
                temp.unlink()
                return False
            # Our version was edited in this moment: that is the latest edit, so it is the plan.
            self._exchange(temp, target)
        self._keep(temp, target, path)
        return False

    def _keep(self, temp: Path, target: Path, path: str) -> None:
        """Gives the edit in `temp` a name that people see.  Raises BadPlan unless the plan is the same."""
        held = _quiet_digest(temp)
        if held and held == _quiet_digest(target):
            temp.unlink()
            return
        kept = target.with_name(f"{_short(target.name)}.muster-kept-{secrets.token_hex(4)}")
        temp.rename(kept)
        raise BadPlan(
            f"{path}: two edits met while it was ticked; the earlier one is kept in {kept}",
            f"Compare the two and delete {kept.name}. The tick is tried again later.",
        )

    def _clean(self, target: Path, path: str) -> None:
        """Settles what a crash has left beside the plan."""
        prefix = f".{_short(target.name)}.muster-"
        for entry in list(os.scandir(target.parent)):
            tail = entry.name.removeprefix(prefix)
            match = _TEMP_TAIL.fullmatch(tail) if tail != entry.name else None
            if not match or not self._is_stale(entry):
                continue
            if match[1]:
                self._settle(Path(entry.path), target, path)
            else:
                Path(entry.path).unlink(missing_ok=True)

    def _is_stale(self, entry: os.DirEntry[str]) -> bool:
        status = entry.stat(follow_symlinks=False)
        # A swapped-out plan has the mtime of its last edit; its ctime tells when it was swapped.
        age_s = self._now_s() - max(status.st_mtime, status.st_ctime)
        return stat.S_ISREG(status.st_mode) and age_s > STALE_AFTER_S


class _Places(NamedTuple):
    text: str
    """As in PlanBytes."""
    of: dict[str, int]
    """By key, the byte between the brackets of its box."""


@contextmanager
def _directory(target: Path, path: str) -> Iterator[int]:
    """The plan's directory, locked against other processes that tick in it."""
    fd = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadPlan(f"{path}: another process is ticking it now", LATER) from None
        except OSError as error:
            # Some network file systems lock no directories; the swap alone still loses no edit there.
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOLCK, errno.EBADF, errno.ENOSYS):
                raise
        yield fd
    finally:
        # Said aloud: a child between fork and exec holds the same lock, and closing ours would not end it.
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _write_temp(target: Path, data: bytes, seen: Snapshot) -> Path:
    """Our version on the disk, with the plan's mode, owner and attributes."""
    token = secrets.token_hex(4)
    prefix = f".{_short(target.name)}.muster-{token}"
    part = target.with_name(f"{prefix}.part")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            _take_owner(fd, seen.status)
            shutil.copystat(target, part)
            os.utime(part)
            os.fchmod(fd, stat.S_IMODE(seen.status.st_mode))
            os.fsync(fd)
        return part.rename(target.with_name(f"{prefix}-{_digest(data)}-{_digest(seen.data)}"))
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _take_owner(fd: int, wanted: os.stat_result) -> None:
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) == (wanted.st_uid, wanted.st_gid):
        return
    try:
        os.fchown(fd, wanted.st_uid, wanted.st_gid)
    except PermissionError as error:
        raise PermissionError(error.errno, "its owner and group could not be kept") from error


def _resolve(folder: Path, path: str) -> Path:
    """The file behind all symbolic links.  Raises BadPlan where there is none."""
    try:
        return (folder / path).resolve(strict=True)
    except OSError as error:
        raise _cannot(path, "read", error) from error
    except (ValueError, RuntimeError) as error:  # a NUL in the name; a loop of links before Python 3.13
        raise BadPlan(f"{path!r}: no such file ({error})", "Check the plan's path.") from error


def _read(path: Path, name: str) -> Snapshot:
    """A plan's bytes, as long as it is a file of at most 8 MiB.  Raises BadPlan."""
    try:
        # Not blocking: a named pipe would make us wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISREG(status.st_mode):
                raise BadPlan(f"{name}: not a regular file", "Write the plan into a markdown file.")
            written = has_writer(fd)
            data = file.read(PLAN_BYTES_MAX + 1)
            written = written or has_writer(fd) or _changed(status, os.fstat(fd))
    except OSError as error:
        raise _cannot(name, "read", error) from error
    except ValueError as error:  # a NUL in the name
        raise BadPlan(f"{name!r}: no such file ({error})", "Check the plan's path.") from error
    if len(data) > PLAN_BYTES_MAX:
        limit = f"{PLAN_BYTES_MAX // 1024 // 1024} MiB"
        raise BadPlan(f"{name}: larger than {limit}", "Split it into several plans.")
    return Snapshot(data, status, written)


def _changed(before: os.stat_result, after: os.stat_result) -> bool:
    return _mark(before) != _mark(after)


def _mark(status: os.stat_result) -> Mark:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _quiet_digest(path: Path) -> str:
    """The digest of a file that nobody is writing; empty where there is no such file."""
    if path.is_symlink():
        return ""
    try:
        seen = _read(path, "")
    except BadPlan:
        return ""
    return "" if seen.written else _digest(seen.data)


def _cannot(name: str, done: str, error: OSError) -> BadPlan:
    if isinstance(error, FileNotFoundError):
        return BadPlan(f"{name}: no such file", "Check the plan's path; `muster init` writes an example.")
    if isinstance(error, IsADirectoryError):
        return BadPlan(
            f"{name}: it is a directory",
            "Name the markdown file in it; `muster plan import` reads folders of other tools.",
        )
    if isinstance(error, PermissionError):
        hint = "Give this user the right to do that: see `ls -l` of the file and of its directory."
        return BadPlan(f"{name}: cannot be {done}: {error.strerror}", hint)
    return BadPlan(f"{name}: cannot be {done}: {error.strerror or error}", "Correct that and try again.")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGEST_CHARS]


def _text(data: bytes, places: Mapping[str, int]) -> str:
    """A digest of all but what stands in boxes at these places; empty where other things stand there."""
    text = bytearray(data)
    for at in places.values():
        if data[at - 1 : at] != b"[" or data[at : at + 1] == b"" or text[at] not in _IN_A_BOX:
            return ""
        text[at] = _CLEAR
    return _digest(bytes(text))


def _short(name: str) -> str:
    """The plan's name, cut where ours would become longer than a file system allows."""
    encoded = os.fsencode(name)
    if len(encoded) <= NAME_BYTES_MAX:
        return name
    return f"{os.fsdecode(encoded[: NAME_BYTES_MAX - 16])}{_digest(encoded)}"


@cache
def _swapper() -> Callable[[bytes, bytes], int] | None:
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin":
        renamex = getattr(libc, "renamex_np", None)
        return renamex and (lambda one, other: renamex(one, other, ctypes.c_uint(_RENAME_EXCHANGE)))
    renameat2 = getattr(libc, "renameat2", None)
    if renameat2 is None:
        return None
    here = ctypes.c_int(-100)  # AT_FDCWD
    flags = ctypes.c_uint(_RENAME_EXCHANGE)
    return lambda one, other: int(renameat2(here, one, here, other, flags))


def exchange(one: Path, other: Path) -> bool:
    """Swaps what two names stand for, at once.  False where the system or the file system cannot.

    Raises OSError, such as FileNotFoundError when either name is gone.
    """
    swap = _swapper()
    if swap is None:
        return False
    if swap(os.fsencode(one), os.fsencode(other)) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), os.fspath(one), None, os.fspath(other))


def has_writer(fd: int) -> bool:
    """Whether any process holds this file open for writing now; `fd` is open for reading only.

    A lease is granted only on a file that nobody is writing, so we ask for one and give it back.  False also
    where that cannot be told: not Linux, another user's file, a file system without leases.
    """
    if sys.platform != "linux":
        return False
    try:
        # A break of the lease would be told by SIGIO, which kills; SIGURG is ignored unless somebody listens.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    return False
