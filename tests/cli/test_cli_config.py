"""`muster config`: where settings come from, and the settings of others."""

from __future__ import annotations

import json

import pytest

from muster.app.settings import load_config
from muster.config.layers import key_lines, line_of

POOL = """\
{
\t"orchestrator": {
\t\t"workerPoolSize": 3,
\t\t"heartbeatIntervalSeconds": 30,
\t\t"leaseDurationMinutes": 45,
\t\t"reconcileIntervalSeconds": 60,
\t\t"shutdownTimeoutSeconds": 90,
\t\t"maxClaimRenewals": 10
\t},
\t"worker": {"name": "w", "capabilities": ["builder"]}
}
"""
CLUSTER = """\
agent_cluster:
  name: "docker"
  membership: {minimum_agents: 2, desired_agents: 3, max_agents: 5}
  health_monitoring:
    heartbeat_interval: "00:00:30"
    failure_threshold: 00:01:30
    health_check_interval: "00:00:10"
  task_queue:
    max_delivery_attempts: 3
    dead_letter_retention: "7.00:00:00"
"""
PLANNER = """\
{"orchestrator": {"max_concurrent_agents": 5, "retry_limit": 1, "pause_on_failure_count": 4},
 "executor": {"timeout": 3600, "max_retries": 2, "retry_delay": 10},
 "agent_mappings": {"writer": ["docs"], "evil\\nkey": []}}
"""


def origins(cli, *argv, **env):
    return {
        row["key"]: (row["value"], row["origin"])
        for row in json.loads(cli("config", "show", "--json", *argv, env=env).out)
    }


def test_every_value_says_where_it_comes_from(cli, root):
    (root / "muster.toml").write_text(
        'agent = "mine"\n\n[task]\nbackoff = { first = "10s" }\n[health]\nheartbeat = "10s"\n'
        '[agents.mine]\ncommand = [\n  "true",\n]\nset.TOKEN = "secret"\n[limits]\ngpu = 2\n'
    )
    told = origins(cli)
    assert told["agent"] == ("mine", "muster.toml:1")
    assert told["task.backoff.first"] == ("10s", "muster.toml:4")
    assert told["task.backoff.max"][0] == "5m" and told["task.backoff.max"][1].startswith("default")
    assert told["health.lease"] == ("30s", "default: three times health.heartbeat, muster.toml:6")
    assert told["workers.count"][0] >= 1 and told["workers.count"][1].startswith("default: one per core")
    assert told["agents.mine.command"] == (["true"], "muster.toml:8")
    assert told["agents.mine.set"] == (["TOKEN"], "muster.toml:11")
    assert told["limits.gpu"] == (2, "muster.toml:13")
    shown = cli("config", "show", "--origin").out
    assert "muster.toml:6" in shown and "secret" not in shown
    assert "muster.toml:6" not in cli("config", "show").out
    assert told["root"][1].startswith("default")
    assert origins(cli, "-C", ".")["root"][1] == "command line: -C ."
    assert origins(cli, MUSTER_ROOT=str(root))["root"][1] == "environment variable: MUSTER_ROOT"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('agent = "shell"\n[task]\nretires = 1\n', 3, "task.retires: is not a known key"),
        ("[task]\n\nretries = -1\n", 3, "task.retries: -1"),
        ("[workers]\ncount = 2\n[helath]\n", 3, "helath: is not a known key"),
        ("[task]\nbackoff = { frist = 1 }\n", 2, "task.backoff.frist"),
        ('[agents.a]\nprompt = "stdin"\ncommand = ["x", ""]\nslots = 0\n', 4, "agents.a.slots"),
        ('note = """\n[task]\n"""\n', 1, "note: is not a known key"),
        ('[agents."b c"]\ncommand = ["x"]\n', 1, "agents.b c: is not a name"),
    ],
)
def test_a_mistake_is_named_with_its_line(cli, root, text, line, words):
    (root / "muster.toml").write_text(text)
    ran = cli("config", "show")
    assert ran.code == 2
    assert f"muster.toml:{line}: {words}" in ran.err


def test_lines_of_keys():
    lines = key_lines('a.b = 1\n"c d" = """\nx = 1\n"""\n[[e]]\nf = [\n  "g = 1",\n]\n  [h.i]  # j\n')
    assert lines == {"a.b": 1, "c d": 2, "e": 5, "e.f": 6, "h.i": 9}
    assert (line_of(lines, "e.f[0]"), line_of(lines, "h.i.k"), line_of(lines, "z")) == (6, 9, None)


def test_a_worker_pool_is_read(cli, root):
    (root / "pool.json").write_text(POOL)
    ran = cli("config", "import", "pool.json", "--write")
    assert ran.code == 0, ran.err
    config = load_config(root)
    assert (config.workers.count, config.workers.drain_s) == (3, 90)
    assert (config.health.heartbeat_s, config.health.lease_s, config.health.claim_lease_s) == (30, 90, 2700)
    assert config.health.sweep_s == 0.5, "a slower look would only make recovery slower"
    text = (root / "muster.toml").read_text()
    for left in (
        "maxClaimRenewals",
        "reconcileIntervalSeconds (health.sweep",
        "worker.name",
        "worker.capabilities",
    ):
        assert f"\n# orchestrator.{left}" in text or f"\n# {left}" in text
    again = cli("config", "import", "pool.json", "--write")
    assert (again.code, "is there already" in again.err) == (6, True)
    assert (root / "muster.toml").read_text() == text


def test_a_cluster_is_read(cli, root):
    (root / "cluster.yaml").write_text(CLUSTER)
    told = json.loads(cli("config", "import", "cluster.yaml", "--json").out)
    assert {one["key"]: one["value"] for one in told["settings"]} == {
        "workers.count": "3",
        "health.heartbeat": '"30s"',
        "health.lease": '"90s"',
        "task.retries": "2",
    }
    assert told["written"] is None and not (root / "muster.toml").exists()
    assert [one["line"] for one in told["notCarriedOver"] if one["from"].endswith("retention")] == [10]


def test_a_plan_orchestrator_is_read(cli, root):
    (root / "orchestrator-config.json").write_text(PLANNER)
    ran = cli("config", "import", "orchestrator-config.json")
    assert ran.code == 0, ran.err
    assert "--write makes it muster.toml" in ran.err
    (root / "muster.toml").write_text(ran.out)
    config = load_config(root)
    assert (config.workers.count, config.task.retries, config.task.failures_max) == (5, 2, 4)
    assert (config.task.timeout_s, config.task.backoff_first_s) == (3600, 10)
    assert "# orchestrator.retry_limit (task.retries = 1)" in ran.out
    assert "# agent_mappings.evil?key" in ran.out, "a key ends no comment"


@pytest.mark.parametrize(
    ("name", "text", "code", "words"),
    [
        (
            "a.json",
            '{\n "workerPoolSze": 3,\n "name": 1}',
            2,
            "a.json:2: unknown key workerPoolSze; did you mean 'workerPoolSize'?",
        ),
        ("a.json", '{"workerPoolSize":\n 0}', 2, "a.json:1: workerPoolSize = 0 is not a whole number"),
        ("a.json", '{"workerPoolSize": true}', 2, "is not a whole number"),
        ("a.json", '{"heartbeatIntervalSeconds": "x"}', 2, "is not a number above 0"),
        ("a.json", '{"workerPoolSize": 3', 2, "a.json:1: not JSON"),
        ("a.json", "[1, 2]", 2, "there are no settings in it"),
        ("a.json", "", 2, "not JSON"),
        ("a.yaml", "", 2, "there are no settings in it"),
        ("a.yaml", "agent_cluster: [", 2, "a.yaml:1: not YAML"),
        (
            "a.yaml",
            "agent_cluster:\n  nam: x\n",
            2,
            "a.yaml:2: unknown key agent_cluster.nam; did you mean 'agent_cluster.name'?",
        ),
        (
            "a.yaml",
            "agent_cluster:\n  self_healing:\n    drain_timeout: soon\n",
            2,
            'a.yaml:3: agent_cluster.self_healing.drain_timeout = "soon" is not a time',
        ),
        ("a.yaml", "workerPoolSize: !!python/object/apply:os.system [x]\n", 2, "a.yaml:1"),
        ("a.yaml", "a: &a [*a]\n", 2, "a.yaml:1"),
        ("a.yaml", "a: &a {b: *a}\n", 2, "a.yaml:1"),
        (
            "a.yaml",
            "agent_cluster:\n  health_monitoring:\n"
            '    heartbeat_interval: "00:01:00"\n    failure_threshold: "00:01:00"\n',
            2,
            "its values do not go together",
        ),
        ("none.json", None, 2, "cannot read none.json"),
    ],
)
def test_what_cannot_be_read_writes_nothing(cli, root, name, text, code, words):
    if text is not None:
        (root / name).write_text(text)
    ran = cli("config", "import", name, "--write")
    assert (ran.code, words in ran.err) == (code, True), ran.err
    assert not (root / "muster.toml").exists()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ((), "VERB"),
        (("import",), "FILE"),
        (("shw",), "did you mean 'show'?"),
        (("show", "--origins"), "--origin"),
        (("show", "x"), "knows no argument 'x'"),
    ],
)
def test_wrong_words(cli, root, argv, words):
    (root / "muster.toml").touch()
    ran = cli("config", *argv)
    assert (ran.code, words in ran.err) == (2, True), ran.err


LOOKS = [("status",), ("task", "list"), ("inbox",), ("plan", "list"), ("logs", "tasks/a"), ("why", "tasks/a")]


@pytest.mark.parametrize("words", LOOKS)
def test_a_typo_in_the_settings_is_a_warning_to_who_only_looks(cli, root, words):
    assert cli("init").code == 0
    assert cli("task", "add", "A", "--prompt", "true").code == 0
    (root / "muster.toml").write_text("[task]\nretris = 3\n")
    ran = cli(*words)
    assert ran.code == 0
    assert ran.err.endswith("note: muster.toml:2: task.retris: is not a known key\n")
    changed = cli("task", "cancel", "tasks/a")
    assert changed.code == 2 and "muster.toml:2: task.retris: is not a known key" in changed.err
    assert "CANCELLED" not in cli("task", "show", "tasks/a", "--json").out


@pytest.mark.parametrize("words", [("list",), ("list", "--json"), ("messages", "desk"), ("test", "desk")])
def test_what_stands_in_the_settings_alone_is_not_said_to_be_nothing_where_they_cannot_be_read(
    cli, root, words
):
    """A channel of which the store has nothing yet."""
    (root / "muster.toml").write_text('[channels.desk]\nkind = "desktop"\n[agents.shell]\nkind = "shell"\n')
    ran = cli("notify", *words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("muster.toml:4: agents.shell.kind: no kind of agent is called 'shell'") == 1
    assert "note:" not in ran.err
