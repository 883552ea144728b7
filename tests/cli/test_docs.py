"""Every command that the documentation shows is run, in the order in which a reader would."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from muster.app import settings as app_settings
from muster.app.settings import load_config
from muster.config.profiles import PROFILES
from muster.model.errors import BadConfig
from muster.model.fields import ATTRIBUTES
from muster.plans.markdown import parse
from pages import blocks, commands, run_as_shown
from patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
CLIS = [ROOT / "docs" / "how-to" / name for name in ("claude-code.md", "codex.md")]
"""Their commands need the CLI that they are about: `./run test-agents` runs them."""
FORGES = [ROOT / "docs" / "how-to" / "pull-requests.md"]
"""Their commands need a forge: test_pr.py has one."""
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if page not in [*CLIS, *FORGES]
]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_commands_work_as_shown(page: Path, tmp_path: Path) -> None:
    env = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}/usr/bin:/bin",
        "HOME": str(tmp_path / "home"),
    }
    folder = tmp_path / "project"
    folder.mkdir()
    try:
        run_as_shown(commands(page), folder, env, limit_s=PATIENCE_S)
    finally:
        subprocess.run(
            ["sh", "-c", "muster down --now"], cwd=folder, env=env, capture_output=True, check=False
        )


def test_the_pages_show_commands() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 10


@pytest.mark.parametrize("page", [*PAGES, *CLIS, *FORGES], ids=lambda page: page.name)
def test_plans_and_settings_shown_are_valid(page: Path, tmp_path: Path) -> None:
    for plan in blocks(page, "markdown"):
        assert parse(plan, page.name).tasks
    for settings in blocks(page, "toml"):
        (tmp_path / "muster.toml").write_text(settings)
        assert load_config(tmp_path).agents


def test_the_kind_shown_is_one_that_settings_may_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed, as far as Python can tell."""
    page = ROOT / "docs" / "how-to" / "any-command.md"
    (module,) = blocks(page, "python")
    (shown,) = [body for body in blocks(page, "text") if "muster.agents" in body]
    (place,) = tomllib.loads(shown)["project"]["entry-points"]["muster.agents"].items()
    site = tmp_path / "site"
    (site / "my_cli-1.dist-info").mkdir(parents=True)
    (site / "my_cli-1.dist-info" / "entry_points.txt").write_text(f"[muster.agents]\n{' = '.join(place)}\n")
    (site / "my_cli.py").write_text(module)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(app_settings, "KINDS", app_settings.InstalledKinds())
    for wrong in ("", 'permission_mode = "rash"\n', 'permission_mode = "bold"\nargs = ["--bold"]\n'):
        (tmp_path / "muster.toml").write_text(f'[agents.mine]\nkind = "my-cli"\n{wrong}')
        with pytest.raises(BadConfig):
            load_config(tmp_path)
    right = '[agents.mine]\nkind = "my-cli"\npermission_mode = "careful"\n'
    (tmp_path / "muster.toml").write_text(right)
    assert load_config(tmp_path).agents["mine"].command == ("my-cli",)


def test_reports_shown_in_concepts_are_accepted(tmp_path: Path) -> None:
    """The shell blocks of `muster report` lines, run inside a task."""
    scripts = [body for body in blocks(ROOT / "docs" / "concepts.md", "sh") if "muster report" in body]
    lines = [line for script in scripts for line in script.splitlines() if " fail " not in line]
    body = "\n".join(f"  {line}" for line in ["set -e", *lines])
    (tmp_path / "plan.md").write_text(
        f"# P\n- [ ] Report {{#report agent=shell retries=0}}\n\n  ```sh\n{body}\n  ```\n"
    )
    run = [sys.executable, "-m", "muster.cli.main", "run", "plan.md"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _rows(page: Path, head: str) -> list[str]:
    _, _, table = page.read_text("utf-8").partition(f"| {head} |")
    return table.partition("\n\n")[0].splitlines()[2:]


def test_the_reference_of_the_plan_file_has_what_the_code_knows() -> None:
    page = ROOT / "docs" / "reference" / "plan-file.md"
    known = [f"| `{name}=` | {found.says} | {found.default} |" for name, found in ATTRIBUTES.items()]
    assert _rows(page, "attribute") == known
    assert _rows(page, "profile") == [
        f"| `{name}` | {', '.join(words)} |" for name, words in PROFILES.items()
    ]
