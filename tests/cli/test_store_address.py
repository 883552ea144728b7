"""A store's address that cannot be, by each way that it comes: refused in words that hold no part of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from muster_command import run_muster

SECRET = "hunter2", "longSecret"
MALFORMED = [f"postgresql://m2:hunter2{char}longSecret@127.0.0.1:1/m2db" for char in "/#?[@"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "muster.toml").touch()
    return tmp_path


def refused(done: subprocess.CompletedProcess[str], folder: Path) -> str:
    assert done.returncode in (1, 2), done.stderr
    log = folder / ".muster" / "muster.log"
    said = done.stdout + done.stderr + (log.read_text() if log.exists() else "")
    assert "Traceback" not in said and "Error" not in said, said
    assert not [word for word in SECRET if word in said], said
    return said


@pytest.mark.parametrize("url", MALFORMED)
@pytest.mark.parametrize("words", [["serve"], ["serve", "--daemon"], ["doctor", "--offline"], ["db", "copy"]])
def test_of_the_environment(folder: Path, url: str, words: list[str]) -> None:
    done = run_muster(folder, *words, env={**os.environ, "MUSTER_SERVE_STORE": url})
    said = refused(done, folder)
    assert "MUSTER_SERVE_STORE: serve.store: holds a " in said and "%2F" in said


@pytest.mark.parametrize("url", MALFORMED)
def test_of_the_settings_and_of_a_file(folder: Path, url: str) -> None:
    (folder / "muster.toml").write_text(f'[serve]\nstore = "{url}"\n')
    assert "muster.toml:2: serve.store: holds a " in refused(run_muster(folder, "serve"), folder)
    kept = folder / "address"
    kept.write_text(f"{url}\n")
    (folder / "muster.toml").write_text(f'[serve]\nstore_file = "{kept}"\n')
    for words in (["serve"], ["serve", "--daemon"], ["db", "copy"]):
        said = refused(run_muster(folder, *words, "--json", env=dict(os.environ)), folder)
        assert f"the address in {kept} holds a " in said
    (folder / "muster.toml").write_text(f'[serve]\nstore_file = "{url}"\n')
    assert "not the name of a file" in refused(run_muster(folder, "serve"), folder)


@pytest.mark.parametrize("words", [["serve", "--store"], ["db", "copy"], ["doctor", "--store"]])
def test_of_the_command_line(folder: Path, words: list[str]) -> None:
    for url in (*MALFORMED, "postgresql://m2:hunter2longSecret"):
        refused(run_muster(folder, *words, url, env=dict(os.environ)), folder)
    assert "port" in refused(run_muster(folder, *words, "postgresql://m2@h:x5511/x"), folder)


@pytest.mark.parametrize("words", [["serve", "--store"], ["db", "copy"], ["doctor", "--store"]])
def test_a_parameter_that_nothing_knows(folder: Path, postgres_store: str, words: list[str]) -> None:
    if words[0] == "db":
        assert run_muster(folder, "task", "add", "one").returncode == 0
    for named, fix in (("foo", "leave it out"), ("sslmod", "sslmode")):
        url = f"{postgres_store}{'&' if '?' in postgres_store else '?'}{named}=1"
        done = run_muster(folder, *words, url, env={**os.environ, "MUSTER_SERVE_LISTEN": "127.0.0.1:0"})
        said = refused(done, folder)
        assert f"its parameter {named};" in said and fix in said, said


def test_a_certificate_that_is_not_there(folder: Path) -> None:
    url = "postgresql://ada@127.0.0.1:1/x?sslmode=verify-full&sslrootcert=/nowhere/ca.pem"
    done = run_muster(
        folder, "serve", "--store", url, env={**os.environ, "MUSTER_SERVE_LISTEN": "127.0.0.1:0"}
    )
    assert done.returncode == 7 and "there is no /nowhere/ca.pem, its sslrootcert" in done.stderr, done.stderr


@pytest.mark.parametrize("words", [["serve"], ["serve", "--daemon"], ["doctor", "--offline"]])
def test_of_a_valkey(folder: Path, words: list[str]) -> None:
    for char in "/#?[":
        for start in ("hunter2", "123"):
            url = f"valkey://:{start}{char}longSecret=1@127.0.0.1:1/0"
            done = run_muster(folder, *words, env={**os.environ, "MUSTER_RUNTIME_URL": url})
            assert f"holds a {char} that has to be" in refused(done, folder)
