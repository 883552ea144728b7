"""muster.toml: what it may say, what the defaults are, and that every mistake is named with its fix."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from muster.app.settings import KINDS, load_config
from muster.config import load
from muster.config.project import Project, find_project
from muster.config.settings import SHELL, AgentConfig, Config, Health, TaskDefaults, WorkerSettings
from muster.model.durations import parse_duration
from muster.model.errors import BadConfig
from muster.model.states import ErrorKind

parse_config = partial(load.parse_config, kinds=KINDS)


def written(tmp_path: Path, text: str) -> Config:
    (tmp_path / "muster.toml").write_text(text, encoding="utf-8")
    return load_config(tmp_path)


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(BadConfig) as caught:
        written(tmp_path, text)
    assert "muster.toml" in caught.value.message
    assert caught.value.hint, "an error without a fix"
    return f"{caught.value.message} | {caught.value.hint}"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86400),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (" 5 m ", 300),
        ("90", 90),
        (90, 90),
        (0.25, 0.25),
        ("0", 0),
    ],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "s", "-5s", "5 weeks", "nan", "inf", "1e3", "5S", "٣s", "1h-5m", "9" * 400, "4000d"),
        *(-1, math.nan, math.inf, -math.inf, 10**400, True, None, [5]),
    ],
)
def test_what_is_no_duration_is_refused(text: str | float) -> None:
    with pytest.raises(BadConfig) as caught:
        parse_duration(text)
    assert "30s" in caught.value.hint


def test_a_missing_and_an_empty_file_give_the_defaults(tmp_path: Path) -> None:
    assert load_config(tmp_path) == written(tmp_path, "") == Config()
    assert Config().task == TaskDefaults(
        timeout_s=7200, retries=3, backoff_first_s=30, backoff_cap_s=300, losses_max=5
    )
    assert Config().workers == WorkerSettings(count=None, slots=1, drain_s=300)
    assert Config().health == Health(heartbeat_s=5, lease_s=15, sweep_s=0.5, orphan_grace_s=600)
    assert Config().agents == {"shell": AgentConfig("shell", ("sh", "-eu"), prompt="script")}
    assert Config().default_agent is None


def test_every_key_is_read(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        """
        agent = "claude"
        [task]
        timeout = "1h"
        retries = 0
        backoff = {first = "1s", max = "1m"}
        losses = 2
        [workers]
        count = 3
        slots = 2
        drain = "10s"
        [health]
        heartbeat = "1s"
        lease = "4s"
        sweep = "100ms"
        orphan_grace = "1m"
        [agents.claude]
        command = ["claude", "-p", ""]
        prompt = "file"
        env = ["ANTHROPIC_API_KEY"]
        set = {CI = "1", EMPTY = ""}
        exit_codes = {invalid = [64, 65], rate_limit = [75]}
        capabilities = ["rust"]
        profiles = ["devops-engineer"]
        slots = 2
        heartbeat = "2s"
        """,
    )
    assert config == Config(
        task=TaskDefaults(timeout_s=3600, retries=0, backoff_first_s=1, backoff_cap_s=60, losses_max=2),
        workers=WorkerSettings(count=3, slots=2, drain_s=10),
        health=Health(heartbeat_s=1, lease_s=4, sweep_s=0.1, orphan_grace_s=60),
        default_agent="claude",
        agents={
            "shell": SHELL,
            "claude": AgentConfig(
                "claude",
                ("claude", "-p", ""),
                prompt="file",
                env_names=("ANTHROPIC_API_KEY",),
                env={"CI": "1", "EMPTY": ""},
                exit_codes={64: ErrorKind.INVALID, 65: ErrorKind.INVALID, 75: ErrorKind.RATE_LIMIT},
                capabilities=("rust",),
                profiles=("devops-engineer",),
                slots=2,
                heartbeat_s=2,
            ),
        },
    )


def test_a_configuration_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Config().task.retries = 9  # type: ignore[misc]


def test_a_project_may_redefine_the_shell(tmp_path: Path) -> None:
    config = written(tmp_path, '[agents.shell]\ncommand = ["bash", "-c"]')
    assert config.agents["shell"].command == ("bash", "-c")


@pytest.mark.parametrize(("cores", "workers"), [(0, 1), (1, 1), (3, 3), (64, 4)])
def test_one_worker_per_core_but_at_most_four(cores: int, workers: int) -> None:
    assert WorkerSettings().number(cores) == workers
    assert WorkerSettings(count=9).number(cores) == 9


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tasks]", ["tasks", "did you mean 'task'?"]),
        ("[task]\nretrys = 1", ["task.retrys", "did you mean 'retries'?"]),
        ("[task.backoff]\nfrist = 1", ["task.backoff.frist", "did you mean 'first'?"]),
        (
            "[task]\nzzz = 1",
            [
                "task.zzz",
                "known keys: backoff, check, failures, losses, retries, review, rounds, rubric, timeout, waiting",
            ],
        ),
        ("task = 5", ["task", "[task]"]),
        ('[task]\ntimeout = "soon"', ["task.timeout", "'soon'", '"30s"']),
        ("[task]\ntimeout = 0", ["task.timeout", "zero"]),
        ("[task]\ntimeout = nan", ["task.timeout", "out of range"]),
        ('[task]\nretries = "3"', ["task.retries", "without quotes"]),
        ("[task]\nretries = true", ["task.retries", "whole number"]),
        ("[task]\nretries = -1", ["task.retries", "from 0"]),
        ("[task]\nlosses = 0", ["task.losses", "from 1"]),
        ('[task]\nbackoff = {first = "9m", max = "5m"}', ["task.backoff.max", "540 s", "raise max"]),
        ("[workers]\ncount = 0", ["workers.count", "from 1"]),
        ('[health]\nlease = "9s"', ["health.lease", "twice", "health.heartbeat (5 s)", 'lease = "15s"']),
        ('agent = "shel"', ["agent", "did you mean 'shell'?"]),
        ('agent = "codex"', ["agent", "define [agents.codex]"]),
        ("[agents.x]", ["agents.x.command", "missing"]),
        ("[agents.x]\ncommand = []", ["agents.x.command", "missing"]),
        ('[agents.x]\ncomand = ["x"]', ["agents.x.comand", "did you mean 'command'?"]),
        ('[agents.x]\ncommand = "claude -p"', ["agents.x.command", 'command = ["claude", "-p"]']),
        ('[agents.x]\ncommand = ["x", 5]', ["agents.x.command[1]", "5"]),
        ('[agents.x]\ncommand = ["x\\u0000"]', ["agents.x.command[0]"]),
        ('[agents."a b"]\ncommand = ["x"]', ["agents.a b", "letters"]),
        ('[agents.x]\ncommand = ["x"]\nprompt = "flie"', ["agents.x.prompt", "did you mean 'file'?"]),
        ('[agents.x]\ncommand = ["x"]\nprompt = "pigeon"', ["agents.x.prompt", '"argument"']),
        ('[agents.x]\ncommand = ["x"]\nenv = ["A=1"]', ["agents.x.env", "set = {"]),
        ('[agents.x]\ncommand = ["x"]\nset = {"A-B" = "1"}', ["agents.x.set.A-B"]),
        ('[agents.x]\ncommand = ["x"]\nset = {A = 1}', ["agents.x.set.A", "in quotes"]),
        ('[agents.x]\ncommand = ["x"]\nenv = ["A"]\nset = {A = "1"}', ["agents.x.set.A", "env"]),
        ('[agents.x]\ncommand = ["x"]\nlimits = {memory = "4 apples"}', ["limits.memory", '"4GB"']),
        ('[agents.x]\ncommand = ["x"]\nlimits = {memory = 5}', ["limits.memory", "1 MB"]),
        ('[agents.x]\ncommand = ["x"]\nlimits = {outptu = "1GB"}', ["limits.outptu", "'output'"]),
        ('[agents.x]\ncommand = ["x"]\nlimits = {files = 3}', ["limits.files", "16"]),
        ('[agents.x]\ncommand = ["x"]\nhome = "owm"', ["agents.x.home", "did you mean 'own'?"]),
        ('[agents.x]\ncommand = ["x"]\nwrites = "yes"', ["agents.x.writes", "without quotes"]),
        ("[git]\nworktree = true", ["git.worktree", "did you mean 'worktrees'?"]),
        ("[git]\nsetup = 5", ["git.setup"]),
        ("[agents.x]\ncommand = ['x']\nwait_pattern = '(a'", ["wait_pattern", "no regular expression"]),
        (
            "[agents.x]\nkind = 'codex'\npermission_mode = 'read-only'\nfailure_pattern = 'a'",
            ["failure_pattern", "is not for kind 'codex'"],
        ),
        ('[agents.x]\ncommand = ["x"]\nexit_codes = {invlid = [1]}', ["invlid", "did you mean 'invalid'?"]),
        ('[agents.x]\ncommand = ["x"]\nexit_codes = {invalid = [0]}', ["exit_codes.invalid", "1 to 255"]),
        ('[agents.x]\ncommand = ["x"]\nexit_codes = {invalid = [true]}', ["exit_codes.invalid"]),
        (
            '[agents.x]\ncommand = ["x"]\nexit_codes = {invalid = [7], auth = [7]}',
            ["exit_codes.auth", "invalid as well"],
        ),
        ("[task\n", ["not valid TOML", "line 1"]),
    ],
)
def test_mistakes_are_named_with_their_fix(tmp_path: Path, text: str, says: list[str]) -> None:
    error = refused(tmp_path, text)
    assert [part for part in says if part not in error] == [], error


def test_a_value_that_may_be_secret_is_not_repeated(tmp_path: Path) -> None:
    assert "31415" not in refused(tmp_path, '[agents.x]\ncommand = ["x"]\nset = {PIN = 31415}')


def test_the_lease_follows_the_heartbeat_unless_it_is_set() -> None:
    assert parse_config({"health": {"heartbeat": 1}}).health.lease_s == 15
    assert parse_config({"health": {"heartbeat": "20s"}}).health.lease_s == 60
    assert parse_config({"health": {"heartbeat": "20s", "lease": "40s"}}).health.lease_s == 40


def test_a_lone_backoff_bound_moves_the_other_one() -> None:
    assert parse_config({"task": {"backoff": {"max": "1s"}}}).task.backoff_first_s == 1
    assert parse_config({"task": {"backoff": {"first": "10m"}}}).task.backoff_cap_s == 600


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").write_bytes(b"agent = '\xff'")
    with pytest.raises(BadConfig, match=r"muster\.toml is not UTF-8"):
        load_config(tmp_path)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").write_bytes(b'\xef\xbb\xbfagent = "shell"')
    assert load_config(tmp_path).default_agent == "shell"


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").mkdir()
    with pytest.raises(BadConfig, match=r"muster\.toml cannot be read"):
        load_config(tmp_path)


def test_a_project_knows_its_files(tmp_path: Path) -> None:
    project = Project(tmp_path)
    state = tmp_path / ".muster"
    assert project.config_file == tmp_path / "muster.toml"
    assert project.state_dir == state
    assert project.store == state / "state.db"
    assert project.socket == str(state / "muster.sock")
    assert project.owner_lock == state / "owner.lock"
    assert project.supervisor_lock == state / "supervisor.lock"
    assert project.log_file == state / "muster.log"
    assert project.attempts_dir == state / "attempts"


@pytest.mark.parametrize("marker", [".muster", "muster.toml"])
def test_a_project_is_found_from_below(tmp_path: Path, marker: str) -> None:
    root = tmp_path / "project"
    deep = root / "a" / "b"
    deep.mkdir(parents=True)
    (root / marker).mkdir() if marker == ".muster" else (root / marker).touch()
    assert find_project(deep, {}) == find_project(root, {}) == Project(root.resolve())
    assert find_project(tmp_path, {}) is None


def test_the_nearest_project_wins_and_links_are_followed(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    (inner / ".muster").mkdir(parents=True)
    (tmp_path / "outer" / "muster.toml").touch()
    (tmp_path / "link").symlink_to(inner)
    assert find_project(tmp_path / "link", {}) == Project(inner.resolve())


def test_the_environment_overrides_the_search(tmp_path: Path) -> None:
    (tmp_path / ".muster").mkdir()
    (tmp_path / "other").mkdir()
    other = Project((tmp_path / "other").resolve())
    assert find_project(tmp_path, {"MUSTER_ROOT": "other"}) == other
    assert find_project(tmp_path, {"MUSTER_ROOT": str(other.root)}) == other
    assert find_project(tmp_path, {"MUSTER_ROOT": ""}) == Project(tmp_path.resolve())
    with pytest.raises(BadConfig, match="MUSTER_ROOT"):
        find_project(tmp_path, {"MUSTER_ROOT": "nowhere"})


def test_a_folder_that_we_may_not_look_into_is_no_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path) -> bool:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "is_dir", closed)
    assert find_project(tmp_path, {}) is None


def test_importing_it_is_cheap() -> None:
    slow = {"tomllib", "msgspec", "asyncio", "difflib", "dataclasses", "inspect"}
    code = f"import sys, muster.config.project; print(*sorted({slow} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_retention_and_the_breaker():
    config = parse_config(
        {"retention": {"events": "10d", "logs": "12h"}, "task": {"failures": 0}},
    )
    assert (config.retention.events_s, config.retention.logs_s) == (864_000, 43_200)
    assert config.retention.idempotency_s == 7 * 86_400 and config.task.failures_max == 0
    for table, key, value in (
        ("retention", "events", "0"),
        ("retention", "event", "1d"),
        ("task", "failures", -1),
    ):
        with pytest.raises(BadConfig, match=f"{table}.{key}"):
            parse_config({table: {key: value}})


# -- limits, slots, offers


def test_limits_slots_and_offers(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        """
        [task]
        waiting = 500
        [limits]
        gpu = 2
        "git push" = 1
        [agents.claude]
        command = ["claude"]
        slots = 3
        capabilities = ["rust"]
        profiles = ["writer"]
        """,
    )
    assert (config.task.waiting_max, config.limits) == (500, {"gpu": 2, "git push": 1})
    claude = config.agents["claude"]
    assert (claude.slots, claude.capabilities, claude.profiles) == (3, ("rust",), ("writer",))
    assert (Config().task.waiting_max, Config().limits) == (100_000, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[limits]\ngpu = 0", "limits.gpu"),
        ("[limits]\ngpu = 'two'", "limits.gpu"),
        ("[limits]\ngpu = true", "limits.gpu"),
        ("limits = 3", "limits"),
        ("[task]\nwaiting = 0", "task.waiting"),
        ("[task]\nwaitin = 5", "did you mean 'waiting'"),
    ],
)
def test_wrong_limits_are_named(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, text)


def test_limits_sizes_and_git_are_read(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        """
        [health]
        stall_after = 0
        [git]
        setup = "make deps"
        merge = false
        [agents.x]
        command = ["x"]
        writes = true
        stall_after = "3m"
        [agents.x.limits]
        memory = "1.5 GiB"
        output = "5000k"
        file_size = 10485760
        """,
    )
    agent = config.agents["x"]
    assert agent.limits.memory_bytes == 3 << 29
    assert (agent.limits.output_bytes, agent.limits.file_bytes) == (5000 << 10, 10 << 20)
    assert (config.health.stall_after_s, agent.stall_after_s) == (0, 180)
    assert (config.git.worktrees, config.git.setup, config.git.merge) == (True, "make deps", False)
    assert config.writers == {"x"} and agent.limits.in_kernel


CLAUDE = '[agents.claude]\nkind = "claude-code"\n'


def test_a_known_cli_needs_no_command_but_its_permission_mode(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").write_text(
        CLAUDE + 'permission_mode = "acceptEdits"\nmodel = "opus"\nmax_budget_usd = 2\nargs = ["--x", ""]\n'
        '[agents.codex]\nkind = "codex"\npermission_mode = "read-only"\nprovider = "mine"\n'
    )
    agents = load_config(tmp_path).agents
    claude, codex = agents["claude"], agents["codex"]
    assert (claude.command, claude.model, claude.max_budget_usd) == (("claude",), "opus", 2.0)
    assert (claude.args, claude.pool) == (("--x", ""), "anthropic")
    assert (codex.command, codex.permission_mode, codex.pool) == (("codex",), "read-only", "mine")
    assert agents["shell"].pool == "shell"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (CLAUDE, "permission_mode: is missing"),
        (CLAUDE + 'permission_mode = "acceptEdit"', "no permission mode"),
        (CLAUDE + 'permission_mode = "plan"\nmax_budget_usd = "5"', "not an amount of dollars"),
        (CLAUDE + 'permission_mode = "plan"\nprompt = "file"', "prompt: is not for kind 'claude-code'"),
        (CLAUDE + 'permission_mode = "plan"\noptions = {}', "options: is not a known key"),
        (
            '[agents.c]\nkind = "codex"\npermission_mode = "read-only"\nmax_budget_usd = 1',
            "max_budget_usd: is not a known key",
        ),
        ('[agents.c]\ncommand = ["c"]\npermission_mode = "plan"', "permission_mode: is not a known key"),
    ],
)
def test_what_a_kind_does_not_know_is_refused(tmp_path: Path, settings: str, message: str) -> None:
    (tmp_path / "muster.toml").write_text(settings)
    with pytest.raises(BadConfig) as refused:
        load_config(tmp_path)
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("kind", "args", "named"),
    [
        ("claude-code", '["--dangerously-skip-permissions"]', "--dangerously-skip-permissions"),
        ("claude-code", '["--add-dir", "/x", "--permission-mode=plan"]', "--permission-mode"),
        ("claude-code", '["--output-format", "text"]', "--output-format"),
        (
            "codex",
            '["--dangerously-bypass-approvals-and-sandbox"]',
            "--dangerously-bypass-approvals-and-sandbox",
        ),
        ("codex", """['-c', 'sandbox_mode="danger-full-access"']""", "sandbox_mode"),
        ("codex", """['--config=approval_policy="on-request"']""", "approval_policy"),
        ("codex", """['-csandbox_mode="danger-full-access"']""", "sandbox_mode"),
        ("codex", """['-c=sandbox_mode="danger-full-access"']""", "sandbox_mode"),
        ("codex", '["-sdanger-full-access"]', "-s"),
        ("codex", '["-mo9"]', "-m"),
    ],
)
def test_arguments_do_not_say_otherwise_what_is_stated(
    tmp_path: Path, kind: str, args: str, named: str
) -> None:
    mode = "plan" if kind == "claude-code" else "read-only"
    text = f'[agents.c]\nkind = "{kind}"\npermission_mode = "{mode}"\nargs = '
    with pytest.raises(BadConfig) as refused:
        written(tmp_path, text + args)
    assert f"agents.c.args: {named} is not for args" in refused.value.message
    assert refused.value.hint
    written(
        tmp_path,
        text + """['-c', 'model_reasoning_effort="high"']""" if kind == "codex" else text + '["--x"]',
    )
