"""What another user has left in a project locks nobody out."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import muster

from muster.client.http import address
from muster.hosts.file_lock import Lock
from patience import PATIENCE_S

# Whoever may not write everywhere, but reads this Python wherever it is installed.
LESSER = [
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"),
    *("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"),
]
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="to be another user is for root",
)


@pytest.fixture
def project() -> Iterator[Path]:
    """It belongs to somebody; what root leaves in it is root's."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder, "muster.toml").touch()
        assert muster(Path(folder), "task", "list")[0] == 0
        for place in (folder, *(str(path) for path in Path(folder).rglob("*"))):
            os.chown(place, 65534, 65534)
        yield Path(folder)


def lesser(project: Path, *argv: str) -> tuple[int, str]:
    command = [*LESSER, sys.executable, "-m", "muster.cli.main", "-C", str(project), *argv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout + done.stderr


def leave_socket(project: Path) -> None:
    path = project / ".muster" / "muster.sock"
    with socket.socket(socket.AF_UNIX) as dead, address(path) as reachable:
        dead.bind(reachable)
    path.chmod(0o600)


def test_the_socket_of_a_dead_owner_of_another_user_keeps_nobody_out(project: Path) -> None:
    leave_socket(project)
    code, said = lesser(project, "status")
    assert code == 0 and "no owner" in said, said
    assert lesser(project, "down") == (0, "Nothing is up.\n")
    code, said = lesser(project, "up", "--daemon", "--workers", "1")
    assert code == 0, said
    assert (project / ".muster" / "muster.sock").stat().st_uid == 65534
    code, said = lesser(project, "down")
    assert code == 0 and "Stopped" in said, said


@pytest.mark.parametrize("argv", [["up", "--daemon"], ["task", "add", "It", "--agent", "shell"]])
def test_sudo_leaves_nothing_of_roots_in_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    (project / ".muster").rename(project / "aside")
    code, said = muster(project, *argv)
    assert code == 4 and "without sudo" in said, said
    assert not (project / ".muster").exists()


@pytest.mark.parametrize("command", ["status", "up"])
def test_what_keeps_one_out_is_named_with_the_command_that_helps(project: Path, command: str) -> None:
    for name in ("owner.lock", "supervisor.lock"):
        path = project / ".muster" / name
        path.touch(mode=0o600)
        path.chmod(0o600)
        os.chown(path, 0, 0)
    code, said = lesser(project, command)
    name = pwd.getpwuid(65534).pw_name
    assert (
        code == 4
        and f"belongs to root: permission denied\n  hint  sudo chown -R {name} {project}/.muster" in said
    ), said


def test_a_crew_of_another_user_is_named(project: Path) -> None:
    leave_socket(project)
    locks = [Lock.take(project / ".muster" / f"{name}.lock") for name in ("owner", "supervisor")]
    try:
        for lock in ("owner.lock", "supervisor.lock"):
            os.chown(project / ".muster" / lock, 65534, 65534)
        code, said = lesser(project, "status")
        assert code == 4 and f"sudo -u root muster -C {project} down" in said, said
        code, said = lesser(project, "down")
        assert code == 4 and "sudo muster down" in said, said
    finally:
        for lock in locks:
            lock.release()
