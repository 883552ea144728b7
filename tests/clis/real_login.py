"""Logins of the real CLIs: keys by their usual names, and what is said of one that is refused or not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_stub import ModelStub, Refuse, Say
from real_run import muster, project, toml_of

from bench import MODES, Bench

MISSING = Refuse(401, "invalid_request_error", "Missing bearer or basic authentication in header")
WRONG = Refuse(401, "authentication_error", "Incorrect API key provided")
HOW = {"claude-code": "run `claude` and type /login", "codex": "run `codex login`"}


@pytest.fixture
def stub() -> Iterator[ModelStub]:
    with ModelStub({"": [Say("ready")]}) as stub:
        yield stub


def codex(folder: Path, stub: ModelStub, **env: str) -> Path:
    """With its own provider, as people have it who set variables alone."""
    settings = Bench(folder, "codex", stub.url, MODES["codex"]).settings
    home = {name: settings["set"][name] for name in ("HOME", "CODEX_HOME")}  # type: ignore[index]
    settings |= {"args": [], "set": home | {"OPENAI_BASE_URL": f"{stub.url}/v1"} | env}
    (folder / "muster.toml").write_text(toml_of("cli", settings))
    return folder


def tried(folder: Path) -> dict[str, str]:
    told: dict[str, str] = json.loads(muster(folder, "agent", "test", "cli", "--json").stdout)
    return told


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "CODEX_API_KEY"])
def test_codex_is_given_its_key_and_address_by_their_usual_names(
    tmp_path: Path, stub: ModelStub, name: str
) -> None:
    told = tried(codex(tmp_path, stub, **{name: "sk-mine"}))
    assert told["ok"], told
    assert {seen.key for seen in stub.seen} == {"Bearer sk-mine"}


def test_a_login_of_codex_itself_comes_before_a_key(tmp_path: Path, stub: ModelStub) -> None:
    folder = codex(tmp_path, stub, OPENAI_API_KEY="sk-other")
    (folder / "home" / "codex" / "auth.json").write_text('{"OPENAI_API_KEY": "sk-login"}')
    assert tried(folder)["ok"]
    assert {seen.key for seen in stub.seen} == {"Bearer sk-login"}


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_a_refused_login_is_told_from_a_missing_one_in_seconds(
    tmp_path: Path, stub: ModelStub, kind: str
) -> None:
    folder = project(tmp_path, stub, kind, own_retries=True)
    stub.scenarios[""] = [WRONG]
    told = tried(folder)
    assert (told["ok"], told["errorKind"]) == (False, "auth")
    assert told["fix"].startswith(f"it was refused: {HOW[kind]}")
    assert float(told["seconds"]) < 20
    failed = muster(folder, "doctor")
    assert failed.returncode == 1
    assert f"it was refused: {HOW[kind]}" in failed.stdout
    asked = len(stub.seen)
    muster(folder, "doctor", "--offline")
    assert len(stub.seen) == asked


def test_a_login_that_is_not_there_is_said_to_be_missing(tmp_path: Path, stub: ModelStub) -> None:
    stub.scenarios[""] = [MISSING]
    told = tried(codex(tmp_path, stub))
    assert (told["errorKind"], told["fix"]) == (
        "auth",
        f"it has no login: {HOW['codex']}, or set CODEX_API_KEY or OPENAI_API_KEY",
    )
    settings = Bench(tmp_path, "claude-code", stub.url, MODES["claude-code"]).settings
    del settings["set"]["ANTHROPIC_API_KEY"]  # type: ignore[attr-defined]
    (tmp_path / "muster.toml").write_text(toml_of("cli", settings))
    told = tried(tmp_path)
    assert told["errorKind"] == "auth", told
    assert told["fix"].startswith(f"it has no login: {HOW['claude-code']}")
