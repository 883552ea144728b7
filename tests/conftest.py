"""What all tests share: a home where nobody is at home, a temporary folder that goes, and how many run at once.

A developer's own settings change no result: not those in `MUSTER_...` variables, which are gone before any test
is read, and not those in files, since HOME is an empty folder for this process and for all that it starts.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from left_behind import files_left, processes_left, remove
from postgres_databases import USER, at, database, drop_template, template
from real_servers import postgres_programs_folder, postgres_url, stop_servers, valkey_url

SIDE_BY_SIDE = 3
"""Tests at once for each core: most of them wait for processes."""
ALONE = os.environ.pop("PYTEST_XDIST_WORKER", None) is None
"""This is the process that was called, not one of those that it has started to run tests side by side."""

PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37

settings.register_profile("usual", deadline=None)  # how long an example takes is the machine's affair
settings.load_profile("usual")
settings.register_profile("long", max_examples=2_000, stateful_step_count=150, deadline=None, print_blob=True)

# A shell starts what runs in the background without Ctrl-C, and every process of a test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# nohup starts it without SIGHUP; a handler of ours outlives the terminal as well, and no child inherits it.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
# Where programs that tests use were installed is no setting of Muster's.
os.environ.setdefault("XDG_CACHE_HOME", str(Path.home() / ".cache"))
for name in [name for name in os.environ if name.startswith("MUSTER_")]:
    del os.environ[name]
for name in ("XDG_CONFIG_HOME", "PYTHONUNBUFFERED"):  # without buffers a full disk fails elsewhere
    os.environ.pop(name, None)
if ALONE:
    # A short name: the address of a unix socket holds 108 bytes.
    os.environ["TMPDIR"] = str(Path(tempfile.mkdtemp(prefix="mt-")).resolve() / "tmp")
    Path(os.environ["TMPDIR"]).mkdir()
    Path(os.environ["TMPDIR"]).parent.chmod(0o711)  # whoever runs PostgreSQL in root's place has to enter it
FOLDER = Path(os.environ["TMPDIR"]).parent
"""Of this run: all that any test writes lies in it, and it is removed at the end."""
tempfile.tempdir = os.environ["TMPDIR"]
os.environ["HOME"] = tempfile.mkdtemp(prefix="home-", dir=FOLDER)


@pytest.fixture(autouse=True)
def others_orphans_are_not_ours() -> Iterator[None]:
    """A test that makes this process a subreaper ends that, too: nobody would collect what later tests leave."""
    yield
    if sys.platform == "linux":
        adopts, libc = ctypes.c_int(), ctypes.CDLL(None)
        libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts), 0, 0, 0)
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        assert not adopts.value, "this process still adopts orphans"


@pytest.fixture(scope="session")
def postgres() -> str:
    """A superuser's address of the run's PostgreSQL."""
    return postgres_url(FOLDER)


@pytest.fixture
def postgres_database(postgres: str) -> Iterator[str]:
    """A superuser's address of an empty database, which is dropped with the test."""
    with database(postgres) as url:
        yield url


@pytest.fixture
def new_postgres_store(postgres: str) -> Iterator[Callable[[], str]]:
    """Makes stores, each with an address for a user who owns it and is no superuser."""
    with ExitStack() as made:

        def make() -> str:
            url = made.enter_context(database(postgres, template(postgres, FOLDER)))
            return at(url, url.rpartition("/")[2], USER)

        yield make


@pytest.fixture
def postgres_store(new_postgres_store: Callable[[], str]) -> str:
    return new_postgres_store()


@pytest.fixture
def postgres_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that go with the server come first on the PATH."""
    monkeypatch.setenv("PATH", f"{postgres_programs_folder()}:{os.environ['PATH']}")


@pytest.fixture
def valkey() -> str:
    """The address of the run's Valkey: whoever writes to it uses names of its own."""
    return valkey_url(FOLDER)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of `localhost`, signed by itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, which makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*argv, "-out", cert, "-keyout", key], check=True, capture_output=True)
    return cert, key


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    cores = os.cpu_count() or 1
    if all("::" in name for name in config.args):
        return 0  # starting them would take longer than these tests
    return cores if all(".py" in name for name in config.args) else SIDE_BY_SIDE * cores


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.option.basetemp is None:
        config.option.basetemp = str(FOLDER / "p")
    if ALONE:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing is left then either


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Side by side, the first one to read all tests leaves them compiled for the others, who wait for it."""
    with (FOLDER / "reading").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(file, fcntl.LOCK_SH)
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session):
    """Says what the tests have left behind, and fails the run for it."""
    yield
    if not ALONE:
        return
    if given := os.environ.get("TEST_POSTGRES"):
        drop_template(given, FOLDER)
    stop_servers(FOLDER)
    left = [*processes_left(FOLDER), *files_left(Path(os.environ["TMPDIR"]))]
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        terminal.write_sep("=", "left behind by the tests", red=True)
        for line in left:
            terminal.write_line(line, red=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    if ALONE:
        remove(FOLDER)
