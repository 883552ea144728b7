"""The commands that the how-to pages show, run with the real CLIs in front of the stub."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from install import install
from model_stub import ModelStub

from pages import blocks, commands, run_as_shown

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
KINDS = {"claude-code": "claude", "codex": "codex"}


@pytest.mark.parametrize("kind", KINDS)
def test_commands_work_as_shown(tmp_path: Path, kind: str) -> None:
    page = PAGES / f"{kind}.md"
    assert commands(page)
    project, home, programs = (tmp_path / name for name in ("project", "home", "programs"))
    for folder in (project, home, programs, home / ".codex"):
        folder.mkdir()
    (project / "muster.toml").write_text(blocks(page, "toml")[0])
    (project / "plan.md").write_text(blocks(page, "markdown")[0])
    (programs / KINDS[kind]).symlink_to(install(kind))
    with ModelStub({}) as stub:
        (home / ".codex" / "config.toml").write_text(
            'model = "gpt-5"\nmodel_provider = "stub"\n[model_providers.stub]\nname = "stub"\n'
            f'base_url = "{stub.url}/v1"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"\n'
        )
        env = {
            "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(home),
            "ANTHROPIC_BASE_URL": stub.url,
            "ANTHROPIC_API_KEY": "sk-ant-dummy",
            "OPENAI_API_KEY": "dummy",
        }
        run_as_shown(commands(page), project, env, limit_s=90)
    assert "- [x] Say hello" in (project / "plan.md").read_text()
