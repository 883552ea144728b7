"""`muster serve --store`: what it refuses, what it shows of the address, and the other commands in its folder."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from muster.app.server import Server
from muster.app.settings import load_config
from muster.cli import serve as serve_command
from muster.config.project import Project
from muster.config.values import without_password
from muster.hosts.file_lock import holder
from muster.model.errors import StoreFault
from muster_command import run_muster
from several_servers import SharedServer, free_port

SECRET = "geheim"


def serve(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: it sets variables for those that it starts."""
    return run_muster(folder, "serve", *words, env=dict(os.environ))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "muster.toml").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://ada:{SECRET}@db/x", "postgresql://ada:***@db/x"),
        (f"postgresql://ada:a@{SECRET}@db:5432/x?a=b", "postgresql://ada:***@db:5432/x?a=b"),
        (f"postgresql://ada@db/x?password={SECRET}&a=b", "postgresql://ada@db/x?password=***&a=b"),
        ("postgresql://ada@db/x", "postgresql://ada@db/x"),
        ("postgresql:///x?host=/run/pg", "postgresql:///x?host=/run/pg"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_a_password_on_the_command_line_is_refused(folder: Path) -> None:
    done = serve(folder, "--store", f"postgresql://ada:{SECRET}@db/x")
    assert done.returncode == 2
    assert "store_file" in done.stderr and SECRET not in done.stderr
    assert not (folder / ".muster").exists()


def test_the_server_that_commands_ask_is_not_the_one_that_is_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_SERVER", "http://127.0.0.1:1")
    away = f"postgresql://ada@127.0.0.1:{free_port()}/x"
    done = serve(folder, "--store", away, "--listen", f"127.0.0.1:{free_port()}")
    assert done.returncode == 7 and "PostgreSQL does not answer" in done.stderr, done.stderr
    assert "note: MUSTER_SERVER (http://127.0.0.1:1)" in done.stderr
    done = serve(folder, "--listen", f"127.0.0.1:{free_port()}")
    assert done.returncode == 2 and "MUSTER_SERVER means" in done.stderr, "a crew may be meant"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--store", "sqlite:///x", "--store: serve.store: is no address of a store"),
        ("--store", "/tmp/x", "--store: serve.store: is no address of a store"),
        ("--store", "", "--store: serve.store: is empty"),
        ("--listen", "17430", "--listen: serve.listen: "),
        ("--runtime", "redis:/x", "--runtime: runtime.url: "),
    ],
)
def test_an_option_that_cannot_be_is_called_by_its_own_name(
    folder: Path, option: str, value: str, said: str
) -> None:
    done = serve(folder, option, value)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "MUSTER_" not in done.stderr and "is not a text" not in done.stderr
    assert not (folder / ".muster").exists()


def test_settings_show_no_password(folder: Path) -> None:
    (folder / "muster.toml").write_text(f'[serve]\nstore = "postgresql://ada:{SECRET}@db/x"\n')
    shown = run_muster(folder, "config", "show")
    assert "postgresql://ada:***@db/x" in shown.stdout and SECRET not in shown.stdout
    (folder / "muster.toml").write_text(f'[serve]\nstore = "mysql://ada:{SECRET}@db/x"\n')
    refused = run_muster(folder, "config", "show")
    assert refused.returncode == 2 and "serve.store" in refused.stderr and SECRET not in refused.stderr


def test_nobody_makes_a_store_in_a_folder_whose_settings_name_another(folder: Path) -> None:
    (folder / "muster.toml").write_text('[serve]\nstore = "postgresql://ada@db/x"\n')
    (folder / "plan.md").write_text("# Plan\n\n- [ ] one\n  agent: claude-of-elsewhere\n")
    for command in (["status"], ["up"], ["run", "plan.md"]):
        done = run_muster(folder, *command)
        assert done.returncode == 7 and "muster serve" in done.stderr, done.stderr
    assert not (folder / ".muster" / "state.db").exists()


def test_a_file_that_holds_no_address_is_refused_by_its_name(folder: Path) -> None:
    kept = folder / "address"
    kept.write_text(f"mysql://ada:{SECRET}@db/x\n")
    (folder / "muster.toml").write_text(f'[serve]\nstore_file = "{kept}"\n')
    done = serve(folder, "--listen", f"127.0.0.1:{free_port()}")
    assert done.returncode == 2 and str(kept) in done.stderr and SECRET not in done.stderr


def test_a_folder_with_a_store_of_its_own_is_refused(folder: Path, postgres_store: str) -> None:
    assert run_muster(folder, "task", "add", "ours", "--plan", "p").returncode == 0
    done = serve(folder, "--store", postgres_store, "--listen", f"127.0.0.1:{free_port()}")
    assert done.returncode == 6 and "state.db" in done.stderr
    assert run_muster(folder, "task", "list").stdout.count("ours") == 1


@pytest.mark.usefixtures("postgres_programs")
def test_a_server_comes_and_goes_and_commands_in_its_folder_tell(tmp_path: Path, postgres_store: str) -> None:
    server = SharedServer(tmp_path / "a", postgres_store, "")
    try:
        server.start()
        folder = server.folder
        added = run_muster(folder, "task", "add", "ours", "--plan", "p")
        assert "`muster worker start --server URL` starts some" in added.stdout, added.stderr
        (folder / "plan.md").write_text("# Plan\n\n- [ ] one\n")
        refused = run_muster(folder, "up")
        assert refused.returncode == 6 and "starts no workers" in refused.stderr, refused.stderr
        assert run_muster(folder, "plan", "add", "plan.md").returncode == 0
        assert "ours" in run_muster(folder, "task", "list").stdout
        again = serve(folder, "--store", postgres_store, "--listen", f"127.0.0.1:{server.port}")
        assert again.returncode == 6 and "already" in again.stderr
        doctor = run_muster(folder, "doctor", "--offline").stdout
        assert f"{postgres_store} answers" in doctor and "this server" in doctor, doctor
        check = run_muster(folder, "db", "check")
        assert check.returncode == 6 and "PostgreSQL" in check.stderr
        backup = run_muster(folder, "db", "backup")
        assert backup.returncode == 0 and ".dump" in backup.stdout, backup.stderr
        down = run_muster(folder, "down")
        assert down.returncode == 0 and "Other servers" in down.stdout, down.stderr
        assert server.process is not None and server.process.wait(60) == 0
        for command in (["status"], ["up"], ["task", "list"]):
            done = run_muster(folder, *command)
            assert done.returncode == 7 and "muster serve" in done.stderr, done.stderr
        assert run_muster(folder, "down").stdout == "Nothing is up.\n"
        assert "not running: `muster serve`" in run_muster(folder, "doctor", "--offline").stdout
        assert run_muster(folder, "db", "backup").returncode == 7
        assert not (folder / ".muster" / "state.db").exists()
        other = SharedServer(tmp_path / "b", postgres_store, "")
        other.begin()
        assert other.process is not None and other.process.wait(60) != 0
        assert "copy .muster/key and .muster/vault.key" in other.log()
    finally:
        if server.process is not None and server.process.poll() is None:
            server.end(signal.SIGKILL)


def test_its_pages_read_what_agents_of_every_kind_say(folder: Path, postgres_store: str) -> None:
    (folder / "muster.toml").write_text(f'[serve]\nstore = "{postgres_store}"\n')

    async def read() -> list[str]:
        async with Server(Project(folder), load_config(folder)) as server:
            said = b'{"type": "assistant", "message": {"content": [{"type": "text", "text": "Done."}]}}'
            return [entry.text for entry in server.backend().reader("of some worker", "").entries(said)]

    assert asyncio.run(read()) == ["Done."]


@pytest.mark.usefixtures("postgres_programs")
def test_it_goes_to_the_background_once_it_serves(folder: Path, postgres_store: str) -> None:
    try:
        up = serve(folder, "--store", postgres_store, "--listen", "127.0.0.1:0", "--daemon")
        assert up.returncode == 0, up.stderr
        assert up.stdout.startswith("Up       server pid ") and "Serving  http://127.0.0.1:" in up.stdout
        again = serve(folder, "--store", postgres_store, "--daemon")
        assert again.returncode == 6 and "a server runs in" in again.stderr
        assert run_muster(folder, "task", "add", "one", "--key", "one").returncode == 0
    finally:
        down = run_muster(folder, "down")
    assert down.returncode == 0, down.stderr
    away = "postgresql://nobody@127.0.0.1:1/none"
    gone = serve(folder, "--store", away, "--daemon")
    assert gone.returncode == 1 and "the server did not start: " in gone.stderr
    ended = serve(folder, "--store", away)
    assert ended.returncode == 7 and "then try again" in ended.stderr and "is tried again" not in ended.stderr


@pytest.mark.parametrize("words", [[], ["--daemon"]])
def test_a_port_in_use_starts_no_server(folder: Path, postgres_store: str, words: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        done = serve(folder, "--store", postgres_store, "--listen", listen, *words)
    assert done.returncode == 6 and f"cannot listen on {listen}" in done.stderr, done.stderr
    assert holder(Project(folder).owner_lock) is None


def test_a_server_that_does_not_come_up_in_time_is_ended(
    folder: Path, postgres_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[subprocess.Popen[bytes]] = []

    class Kept(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            begun.append(self)

    monkeypatch.setattr(serve_command.subprocess, "Popen", Kept)
    monkeypatch.setattr(serve_command, "READY_S", -1.0)
    monkeypatch.setenv("MUSTER_SERVE_STORE", postgres_store)
    args = argparse.Namespace(serving="", json=True)
    with pytest.raises(StoreFault, match="did not start"):
        serve_command._in_background(args, Project(folder))
    assert begun[0].returncode is not None
