"""A new key for what servers of one PostgreSQL store seal: all of them have it first, or none uses it."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from muster_command import MUSTER, run_muster
from patience import PATIENCE_S, until
from several_servers import Servers, SharedServer, free_port, several

VALUE = "s3cret-value-0123456789"


def set_secret(server: SharedServer, name: str = "TOKEN") -> None:
    said = [*MUSTER, "secrets", "set", name]
    subprocess.run(said, cwd=server.folder, input=VALUE, text=True, check=True, stdout=subprocess.DEVNULL)


def add_task(server: SharedServer, name: str) -> None:
    said = [*MUSTER, "task", "add", name, "--key", name, "--input-context", "-"]
    context = json.dumps({"apiKey": VALUE})
    subprocess.run(said, cwd=server.folder, input=context, text=True, check=True, stdout=subprocess.DEVNULL)


def keys(server: SharedServer) -> list[str]:
    return (server.folder / ".muster" / "vault.key").read_text().split()


@pytest.mark.usefixtures("postgres_programs")
def test_the_new_key_seals_once_every_server_that_is_up_has_it(tmp_path: Path, postgres_store: str) -> None:
    with several(tmp_path, postgres_store, 2) as servers:
        one, other = servers.every
        set_secret(one)
        add_task(other, "first")
        assert run_muster(one.folder, "webhook", "add", "https://example.org/x").returncode == 0
        (old,) = keys(one)
        refused = run_muster(one.folder, "secrets", "rotate")
        assert refused.returncode == 6 and other.named in refused.stderr, refused.stderr
        assert f"copy {one.folder}/.muster/vault.key over the .muster/vault.key" in refused.stderr
        assert keys(one)[1:] == [old], "it waits beside the present one"
        add_task(one, "second")
        shutil.copy(one.folder / ".muster" / "vault.key", other.folder / ".muster" / "vault.key")
        until(lambda: run_muster(one.folder, "secrets", "rotate").returncode == 0, "the other has it")
        until(lambda: keys(one) == keys(other) and len(keys(one)) == 1, "the old one is given up")
        assert old not in keys(one)
        set_secret(other, "LATER")
        again = run_muster(one.folder, "secrets", "rotate")
        assert again.returncode == 6 and len(keys(one)) == 2
        other.end()
        told = run_muster(one.folder, "secrets", "rotate").stdout
        assert told == "a new key: 2 secrets, 1 webhooks and 2 tasks sealed anew\n"
        other.begin()
        assert other.process is not None and other.process.wait(PATIENCE_S) != 0
        assert "copy .muster/vault.key of another server to this folder" in other.log()


@pytest.mark.promise("S6")
@pytest.mark.usefixtures("postgres_programs")
def test_a_server_killed_at_any_step_of_it_leaves_all_readable(tmp_path: Path, postgres_store: str) -> None:
    servers = Servers(tmp_path, postgres_store, 1)
    (server,) = servers.every
    try:
        server.start()
        set_secret(server)
        add_task(server, "ours")
        server.end()
        for step in range(10):
            server.port = free_port()
            words = ["serve", "--store", postgres_store, "--listen", f"127.0.0.1:{server.port}"]
            argv = [sys.executable, Path(__file__).with_name("killed_server.py"), str(step), *words]
            with (server.folder / "log").open("ab") as log:
                server.process = subprocess.Popen(argv, cwd=server.folder, stdout=log, stderr=log)
            until(server.ready, "it serves")
            done = run_muster(server.folder, "secrets", "rotate")
            if server.process.poll() is None and done.returncode == 0:
                break
            assert server.process.wait(PATIENCE_S) == -signal.SIGKILL, (done.stderr, server.log())
        assert (step, done.stdout) == (6, "a new key: 1 secrets, 0 webhooks and 1 tasks sealed anew\n")
        assert len(keys(server)) == 1
    finally:
        servers.close()


@pytest.mark.usefixtures("postgres_programs")
def test_a_store_whose_key_is_lost_goes_on_without_what_it_sealed(
    tmp_path: Path, postgres_store: str
) -> None:
    servers = Servers(tmp_path, postgres_store, 1)
    (server,) = servers.every
    try:
        server.start()
        set_secret(server)
        add_task(server, "ours")
        hook = ("webhook", "add", "https://example.org/x")
        assert run_muster(server.folder, *hook).returncode == 0
        reset = ("secrets", "reset", "--yes")
        settings = f'[serve]\nstore = "{postgres_store}"\n'
        (server.folder / "muster.toml").write_text(settings)
        (server.folder / ".muster" / "vault.key").write_text(f"{'0' * 63}1\n")
        up = run_muster(server.folder, *reset)
        assert up.returncode == 6 and f"{server.named} is up" in up.stderr, up.stderr
        server.end()
        server.begin()
        assert server.process is not None and server.process.wait(PATIENCE_S) != 0
        assert "muster secrets reset" in server.log()
        unasked = run_muster(server.folder, "secrets", "reset")
        assert unasked.returncode == 2 and "nobody has agreed" in unasked.stderr
        told = run_muster(server.folder, *reset)
        assert told.returncode == 0, told.stderr
        assert told.stdout.startswith("dropped: 1 secret, 1 webhook; tasks and history are as they were\n")
        assert "muster secrets set TOKEN" in told.stdout and "muster webhook add https://ex" in told.stdout
        server.start()
        happened = [
            event["event"]
            for event in json.loads(run_muster(server.folder, "audit", "list", "--json").stdout)
        ]
        assert {"key_reset", "secret_deleted", "webhook_removed"} <= set(happened)
        assert run_muster(server.folder, "secrets", "list").stdout == "0 secrets\n"
        assert run_muster(server.folder, "task", "show", "ours").returncode == 0
        set_secret(server)
        assert run_muster(server.folder, *reset).returncode == 6
    finally:
        servers.close()
