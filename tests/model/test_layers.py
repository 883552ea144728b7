"""Settings in layers: what goes before what, and that a mistake is told where it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from muster.app.settings import load_config, load_with_origins
from muster.config.keys import KEYS, Key
from muster.config.layers import user_file
from muster.config.settings import Config
from muster.config.variables import OURS, VARIABLES, unknown_in, variable_of
from muster.model.errors import BadConfig

SOURCE = Path(__file__).parents[2] / "src" / "muster"
USER = "~/.config/muster/muster.toml"


class Place:
    """A project, and a user with a home."""

    def __init__(self, folder: Path) -> None:
        self.root, self.home = folder / "project", folder / "home"
        self.root.mkdir()
        self.user_file = self.home / ".config" / "muster" / "muster.toml"
        self.user_file.parent.mkdir(parents=True)
        self.env = {"HOME": str(self.home)}

    def load(self, user: str = "", project: str = "", **variables: str) -> Config:
        self.user_file.write_text(user, "utf-8")
        (self.root / "muster.toml").write_text(project, "utf-8")
        return load_config(self.root, self.env | variables)

    def refused(self, user: str = "", project: str = "", **variables: str) -> str:
        with pytest.raises(BadConfig) as caught:
            self.load(user, project, **variables)
        assert caught.value.hint, "an error without a fix"
        return f"{caught.value.message} | {caught.value.hint}"

    def origin(self, key: str, variables: Mapping[str, str] | None = None) -> str | None:
        return load_with_origins(self.root, self.env | dict(variables or {}))[1].origin(key)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_each_layer_goes_before_those_below_it(place: Place) -> None:
    config = place.load(
        '[task]\nretries = 1\nlosses = 11\ntimeout = "1m"\n',
        "[task]\nretries = 2\nlosses = 12\n",
        MUSTER_TASK_RETRIES="3",
    )
    assert (config.task.retries, config.task.losses_max, config.task.timeout_s) == (3, 12, 60)
    assert config.task.waiting_max == Config().task.waiting_max
    variables = {"MUSTER_TASK_RETRIES": "3"}
    assert place.origin("task.retries", variables) == "environment variable: MUSTER_TASK_RETRIES"
    assert place.origin("task.retries") == "muster.toml:2"
    assert place.origin("task.losses") == "muster.toml:3"
    assert place.origin("task.timeout") == f"{USER}:4"
    assert place.origin("task.waiting") is None


def test_without_any_layer_there_are_the_defaults(place: Place) -> None:
    assert load_config(place.root, place.env) == load_config(place.root, {}) == Config()


def test_tables_are_merged_and_lists_replaced(place: Place) -> None:
    config = place.load(
        '[agents.mine]\ncommand = ["a", "b"]\nprompt = "file"\nset = { A = "1", B = "1" }\n'
        "limits = { files = 64, processes = 7 }\n[limits]\ngpu = 1\nnet = 1\n"
        '[profiles]\nfish = ["cod", "eel"]\n',
        '[agents.mine]\ncommand = ["c"]\nset.B = "2"\nlimits.files = 32\n[limits]\ngpu = 2\n'
        '[profiles]\nfish = ["ray"]\n',
    )
    mine = config.agents["mine"]
    assert (mine.command, mine.prompt, mine.env) == (("c",), "file", {"A": "1", "B": "2"})
    assert (mine.limits.files, mine.limits.processes) == (32, 7)
    assert config.limits == {"gpu": 2, "net": 1}
    assert config.profiles["fish"] == ("ray",)
    assert place.origin("agents.mine.set") == f"muster.toml:3, {USER}:4"
    assert place.origin("agents.mine.prompt") == f"{USER}:3"


def test_an_agent_of_another_kind_stands_alone(place: Place) -> None:
    user = '[agents.mine]\ncommand = ["a"]\nprompt = "file"\nslots = 2\n'
    kind = '[agents.mine]\nkind = "claude-code"\npermission_mode = "plan"\n'
    alone = place.load(user, kind).agents["mine"]
    assert (alone.command, alone.slots) == (("claude",), None)
    assert place.origin("agents.mine.slots") is None and place.origin("agents.mine") == "muster.toml:1"
    back = place.load(kind, '[agents.mine]\nkind = "command"\ncommand = ["b"]\n').agents["mine"]
    assert (back.kind, back.permission_mode) == ("command", None)
    same = place.load(user, '[agents.mine]\nkind = "command"\nslots = 3\n').agents["mine"]
    assert (same.command, same.prompt, same.slots) == (("a",), "file", 3)
    model = place.load(kind, '[agents.mine]\nmodel = "m"\n').agents["mine"]
    assert (model.kind, model.permission_mode, model.model) == ("claude-code", "plan", "m")


@pytest.mark.parametrize(
    ("user", "project", "variables", "says"),
    [
        ("\n[task]\nretrys = 1", "[task]\nretries = 2", {}, [f"{USER}:3: task.retrys", "'retries'"]),
        ("[task]\nretries = 1", "[task]\n\nretrys = 2", {}, ["muster.toml:3: task.retrys", "'retries'"]),
        ("[tasks]", "", {}, [f"{USER}:1: tasks", "'task'"]),
        ("[task\n", "", {}, [f"{USER} is not valid TOML", "line 1"]),
        (
            '[agents.x]\nenv = ["A"]',
            "[agents.x]\nslots = 1",
            {},
            ["muster.toml:1: agents.x.command", "missing"],
        ),
        ('[agents.x]\nenv = ["A"]', "agent = 'x'", {}, [f"{USER}:1: agents.x.command", "missing"]),
        ('[agents.x]\ncommand = [\n"a", 5]', "[agents.x]\nslots = 1", {}, [f"{USER}:2: agents.x.command[1]"]),
        ("task = 1", "[task]\nretries = 2", {}, []),
        ("[task]\nretries = 2", "task = 1", {}, ["muster.toml:1: task: 1 is not a table"]),
        ("[task]\nretries = 'x'", "[task]\nretries = 1", {}, []),
        ("agent = 'ghost'", "", {}, [f"{USER}:1: agent", "define [agents.ghost]"]),
        (
            '[health]\nheartbeat = "30s"',
            '[health]\nlease = "20s"',
            {},
            ["muster.toml:2: health.lease", f"health.heartbeat stands in {USER}:2", '"90s"'],
        ),
        (
            '[task.backoff]\nfirst = "9m"',
            "",
            {"MUSTER_TASK_BACKOFF_MAX": "5m"},
            ["MUSTER_TASK_BACKOFF_MAX: task.backoff.max", f"task.backoff.first stands in {USER}:2"],
        ),
        ("", "", {"MUSTER_TASK_RETRIES": "many"}, ["MUSTER_TASK_RETRIES: task.retries: 'many'", "like 3"]),
        ("", "", {"MUSTER_TASK_TIMEOUT": "soon"}, ["MUSTER_TASK_TIMEOUT: task.timeout: 'soon'", '"30s"']),
        ("", "", {"MUSTER_TASK_RETRIES": "[1]"}, ["MUSTER_TASK_RETRIES: task.retries: '[1]'"]),
        ("", "", {"MUSTER_TASK_RETRIES": "1\nx = 2"}, ["MUSTER_TASK_RETRIES: task.retries: '1\\nx = 2'"]),
        ("", "", {"MUSTER_GIT_KEEP": "yes"}, ["MUSTER_GIT_KEEP: git.keep: 'yes'", "true or false"]),
        ("", "", {"MUSTER_AGENT": "shel"}, ["MUSTER_AGENT: agent: ", "did you mean 'shell'?"]),
        (".".join("a" * 3000) + " = 1", "", {}, [f"{USER}:1: a: is not a known key"]),
    ],
)
def test_a_mistake_is_told_where_it_stands(
    place: Place, user: str, project: str, variables: dict[str, str], says: list[str]
) -> None:
    if not says:  # what a layer above replaces does not count
        place.load(user, project, **variables)
        return
    error = place.refused(user, project, **variables)
    assert [part for part in says if part not in error] == [], error


def test_values_of_variables_need_no_quotes(place: Place) -> None:
    config = place.load(
        MUSTER_TASK_TIMEOUT="1h30m",
        MUSTER_HEALTH_SWEEP="0.5",
        MUSTER_WORKERS_COUNT="3",
        MUSTER_GIT_MERGE="false",
        MUSTER_GIT_SETUP="true",
        MUSTER_AGENT='"shell"',
        MUSTER_TASK_RETRIES="",
    )
    assert (config.task.timeout_s, config.health.sweep_s, config.workers.count) == (5400, 0.5, 3)
    assert (config.git.merge, config.git.setup, config.default_agent) == (False, "true", "shell")
    assert config.task.retries == Config().task.retries, "an empty variable counts as unset"


_LIKE_OTHERS = (
    "17430",
    "0.5",
    "true",
    "false",
    "1979-05-27",
    "07:32:00",
    "1979-05-27T07:32:00Z",
    "[1]",
    "{}",
    "inf",
)


@pytest.mark.parametrize("text", _LIKE_OTHERS)
@pytest.mark.parametrize("key", [key for key in KEYS if str in key.takes and int not in key.takes])
def test_a_text_that_looks_like_something_else_is_read_as_that_text(
    place: Place, key: Key, text: str
) -> None:
    """As in quotes in a file: the same value, or the same mistake."""

    def said(project: str = "", **variables: str) -> str:
        try:
            return repr(key.value(place.load(project=project, **variables)))
        except BadConfig as error:
            return error.message.partition(": ")[2]

    *tables, last = key.path.split(".")
    heading = f"[{'.'.join(tables)}]\n" if tables else ""
    assert said(**{variable_of(key.path): text}) == said(f"{heading}{last} = '{text}'")


@pytest.mark.parametrize("text", ["5", "true", "1979-05-27", "dist"])
def test_one_text_is_no_list_in_a_variable_either(place: Place, text: str) -> None:
    said = place.refused(MUSTER_GIT_DROPPINGS=text)
    assert "is one text where a list is needed" in said and f'["{text}"]' in said
    assert place.load(MUSTER_GIT_DROPPINGS=f'["{text}"]').git.droppings == (text,)


def test_the_lease_follows_a_heartbeat_of_any_layer(place: Place) -> None:
    assert place.load('[health]\nheartbeat = "10s"').health.lease_s == 30
    assert place.load('[health]\nheartbeat = "10s"', MUSTER_HEALTH_HEARTBEAT="20s").health.lease_s == 60


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"HOME": "/h"}, "/h/.config/muster/muster.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "/x"}, "/x/muster/muster.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": ""}, "/h/.config/muster/muster.toml"),
        ({"HOME": "/h", "XDG_CONFIG_HOME": "x"}, "/h/.config/muster/muster.toml"),
        ({"HOME": "h"}, None),
    ],
)
def test_where_the_user_file_is(env: dict[str, str], expected: str | None) -> None:
    assert user_file(env) == (Path(expected) if expected else None)


def test_a_user_file_that_cannot_be_read_is_refused(place: Place) -> None:
    place.user_file.write_bytes(b"agent = '\xff'")
    with pytest.raises(BadConfig, match=f"{USER} is not UTF-8"):
        load_config(place.root, place.env)
    place.user_file.unlink()
    place.user_file.mkdir()
    with pytest.raises(BadConfig, match=f"{USER} cannot be read") as caught:
        load_config(place.root, place.env)
    assert "XDG_CONFIG_HOME" in caught.value.hint
    elsewhere = {"XDG_CONFIG_HOME": str(place.root / "none")}
    assert load_config(place.root, place.env | elsewhere) == Config()


def test_a_folder_that_may_not_be_looked_into_is_no_silence(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", closed)  # whoever runs the tests may be allowed everything
    with pytest.raises(BadConfig, match=f"{USER} cannot be read: Permission denied") as caught:
        load_config(place.root, place.env)
    assert "XDG_CONFIG_HOME" in caught.value.hint


@pytest.mark.parametrize("home", ["/dev/null", "/nonexistent"])
def test_a_home_that_is_none_has_no_file(place: Place, home: str) -> None:
    assert load_config(place.root, {"HOME": home}) == Config()


def test_no_variable_of_a_key_has_another_meaning() -> None:
    assert len(VARIABLES) == len(KEYS)
    assert {"MUSTER_TASK_RETRIES", "MUSTER_AGENT", "MUSTER_TASK_BACKOFF_FIRST"} <= VARIABLES.keys()
    assert VARIABLES.keys() & OURS == set()


def test_every_other_variable_in_the_code_is_known_as_ours() -> None:
    texts = [path.read_text("utf-8") for path in SOURCE.rglob("*.py") if path.name != "variables.py"]
    found = {name for text in texts for name in re.findall(r"\bMUSTER_[A-Z_]*[A-Z]\b", text)}
    assert found - VARIABLES.keys() == OURS


def test_what_a_strange_variable_may_mean() -> None:
    env = dict.fromkeys(("MUSTER_TASK_RETRYS", "MUSTER_DEBGU", "MUSTER_XYZ", "MUSTER_ROOT", "MUSTERS"), "1")
    assert list(unknown_in(env | {"MUSTER_TASK_RETRIES": "1"})) == [
        ("MUSTER_DEBGU", "did you mean 'MUSTER_DEBUG'?"),
        ("MUSTER_TASK_RETRYS", "did you mean 'MUSTER_TASK_RETRIES'?"),
        ("MUSTER_XYZ", ""),
    ]


def test_tests_do_not_see_the_settings_of_who_runs_them(place: Place) -> None:
    """In this process, and in one that begins with them: the test there would fail."""
    assert not [name for name in os.environ if name.startswith("MUSTER_")]
    user = user_file(os.environ)
    assert user is not None and not user.exists()
    place.user_file.write_text("[task]\nretries = 99\n", "utf-8")
    xdg = str(place.user_file.parents[1])
    poison = {**place.env, "XDG_CONFIG_HOME": xdg, "MUSTER_TASK_LOSSES": "99"}
    test = Path(__file__).with_name("test_config.py")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            f"{test}::test_a_missing_and_an_empty_file_give_the_defaults",
        ],
        env={**os.environ, **poison},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
