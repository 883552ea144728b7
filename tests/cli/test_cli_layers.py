"""Settings of all layers, as commands tell them and a crew obeys them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from muster.app.settings import load_config
from muster.cli.demo import own_settings
from muster.config.settings import Config
from muster.config.variables import VARIABLES
from patience import PATIENCE_S

USER = "~/.config/muster/muster.toml"


@pytest.fixture
def home(root, tmp_path, monkeypatch) -> Path:
    """Of a user who has no settings yet."""
    folder = tmp_path / "home"
    (folder / ".config" / "muster").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    (root / "muster.toml").touch()
    return folder


def wants(home: Path, text: str) -> Path:
    path = home / ".config" / "muster" / "muster.toml"
    path.write_text(text)
    return path


def test_config_show_names_every_layer(cli, root, home):
    wants(home, 'agent = "mine"\n[health]\nheartbeat = "10s"\n[agents.mine]\ncommand = ["true"]\nslots = 2\n')
    (root / "muster.toml").write_text("[task]\nlosses = 9\nretries = 1\n[agents.mine]\nslots = 3\n")
    env = {"MUSTER_TASK_RETRIES": "7", "MUSTER_TASK_BACKOFF_MAX": "5s"}
    ran = cli("-C", ".", "config", "show", "--json", env=env)
    told = {row["key"]: (row["value"], row["origin"]) for row in json.loads(ran.out)}
    assert told["root"][1] == "command line: -C ."
    assert told["task.retries"] == (7, "environment variable: MUSTER_TASK_RETRIES")
    assert told["task.losses"] == (9, "muster.toml:2")
    assert told["agent"] == ("mine", f"{USER}:1")
    assert told["agents.mine.command"] == (["true"], f"{USER}:5")
    assert told["agents.mine.slots"] == (3, "muster.toml:5")
    assert told["task.waiting"] == (100_000, "default")
    assert told["health.lease"] == ("30s", f"default: three times health.heartbeat, {USER}:3")
    assert told["task.backoff.first"] == ("5s", "default: not more than task.backoff.max")
    beat = {"MUSTER_HEALTH_HEARTBEAT": "8s"}
    (row,) = [
        row
        for row in json.loads(cli("config", "show", "--json", env=beat).out)
        if row["key"] == "health.lease"
    ]
    assert (row["value"], row["origin"].rpartition(", ")[2]) == (
        "24s",
        "environment variable: MUSTER_HEALTH_HEARTBEAT",
    )
    shown = cli("config", "show", "--origin", env=env).out
    assert f"{USER}:5" in shown and "environment variable: MUSTER_TASK_RETRIES" in shown


def test_a_mistake_of_the_user_stops_commands_like_one_of_the_project(cli, root, home):
    wants(home, "[task]\nretrys = 1\n")
    for argv in (("config", "show"), ("agent", "list"), ("up",)):
        ran = cli(*argv)
        assert (ran.code, f"{USER}:2: task.retrys" in ran.err, "'retries'" in ran.err) == (2, True, True), ran
    ran = cli("config", "show", env={"XDG_CONFIG_HOME": str(root)})
    assert ran.code == 0


def test_doctor_names_what_stands_outside_of_the_project(cli, root, home):
    def checks(**env: str) -> dict[str, list[tuple[bool | None, str, str]]]:
        told: dict[str, list[tuple[bool | None, str, str]]] = {}
        for check in json.loads(cli("doctor", "--json", env=env).out)["checks"]:
            told.setdefault(check["name"], []).append((check["ok"], check["found"], check["fix"]))
        return told

    before = checks()
    assert "user settings" not in before and "environment" not in before
    file = wants(home, 'agent = "shell"\n')
    env = {"MUSTER_TASK_RETRIES": "4", "MUSTER_TASK_RETRYS": "4", "MUSTER_QQ": "1", "MUSTER_DEBUG": "1"}
    after = checks(**env)
    assert after["user settings"] == [(True, f"{USER}, for all your projects", "")]
    assert after["configuration"] == [(True, "valid", "")]
    good, strange, close = after["environment"]
    assert good == (True, "settings: MUSTER_TASK_RETRIES", "")
    assert close == (None, "MUSTER_TASK_RETRYS is no setting", "did you mean 'MUSTER_TASK_RETRIES'?")
    assert strange[:2] == (None, "MUSTER_QQ is no setting") and "unset MUSTER_QQ" in strange[2]
    file.write_text("[tsk]\n")
    ((ok, found, fix),) = checks()["configuration"]
    assert not ok and found.startswith(f"{USER}:1: tsk") and "'task'" in fix


def test_the_demo_has_no_settings_but_its_own(root, home, monkeypatch):
    wants(home, "[task]\nretries = 77\n")
    monkeypatch.setenv("MUSTER_TASK_LOSSES", "7")
    (root / "muster.toml").unlink()
    before = dict(os.environ)
    with own_settings(root):
        assert load_config(root) == Config()
        # Its processes get the environment of this one.
        code = (
            "from muster.app.settings import load_config; from pathlib import Path;"
            "from muster.config.settings import Config; assert load_config(Path()) == Config()"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
    assert dict(os.environ) == before
    assert load_config(root).task.retries == 77


def test_a_run_obeys_all_layers(root, home):
    """The user's agent fails: the project would let it run twice, the variable three times."""
    script = (
        'echo "$MUSTER_EPOCH" >> runs; env > env.txt; [ "$MUSTER_EPOCH" -lt 3 ] && exit 1; echo "$OF" >> runs'
    )
    wants(
        home,
        'agent = "mine"\n[task]\nretries = 0\nbackoff = { first = "20ms", max = "20ms" }\n[agents.mine]\n'
        f"command = {json.dumps(['sh', '-c', script])}\nset = {{ OF = 'user' }}\n",
    )
    (root / "muster.toml").write_text("[task]\nretries = 1\n[agents.mine]\nset = { OF = 'project' }\n")
    (root / "plan.md").write_text("# P\n- [ ] One {#one}\n")
    done = subprocess.run(
        [sys.executable, "-m", "muster.cli.main", "run", "plan.md", "--workers", "1"],
        cwd=root,
        env={**os.environ, "MUSTER_TASK_RETRIES": "2", "XDG_CONFIG_HOME": str(home / ".config")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (root / "runs").read_text().split() == ["1", "2", "3", "project"]
    handed_on = {line.partition("=")[0] for line in (root / "env.txt").read_text().splitlines()}
    assert "MUSTER_EPOCH" in handed_on
    assert not handed_on & {*VARIABLES, "XDG_CONFIG_HOME"}, "settings of the crew are none of its agents'"
