"""The commands that the how-to pages show, run with the real CLIs in front of the stub."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from install import install
from model_stub import ModelStub

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
KINDS = {"claude-code": "claude", "codex": "codex"}
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("kind", KINDS)
def test_commands_work_as_shown(tmp_path: Path, kind: str) -> None:
    blocks: dict[str, str] = {}
    for language, body in _BLOCK.findall((PAGES / f"{kind}.md").read_text("utf-8")):
        blocks.setdefault(language, body)
    commands = [line[2:] for line in blocks["console"].splitlines() if line.startswith("$ ")]
    assert commands
    project, home, programs = (tmp_path / name for name in ("project", "home", "programs"))
    for folder in (project, home, programs, home / ".codex"):
        folder.mkdir()
    (project / "muster.toml").write_text(blocks["toml"])
    (project / "plan.md").write_text(blocks["markdown"])
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
        for command in commands:
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=project,
                env=env,
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
            assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
    assert "- [x] Say hello" in (project / "plan.md").read_text()
