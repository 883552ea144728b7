"""`muster logs` and `muster watch`."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from muster.cli.logs import _explain_silence
from muster.cli.raw import Inert
from muster.model import commands as c
from muster.stores.sqlite.store import SqliteStore
from patience import PATIENCE_S
from serving import ServedOwner


def test_a_pipe_gets_the_bytes_as_they_were_printed(cli, owner):
    data = b"\x1b[31mred\x1b[0m\r\n\xff\x00\x1b]0;title\x07end"
    api = owner.tasks()["api"]
    owner.log(api.id, 1, data)
    owner.log(api.id, 1, b"oops", stream="stderr")
    assert cli("logs", "api").raw == data + b"oops"
    assert cli("logs", "api#1", "--stream", "stdout").raw == data
    assert cli("logs", "api", "--stream=stderr").raw == b"oops"


def ran_elsewhere(owner, key, *, kind, data, agent="far"):
    """A task that a worker with settings of its own has run."""
    worker = f"worker-{key:z<8}"
    owner.register(worker, hostname="h2", agents=(agent,), general=(), offers={agent: c.Offer(kind=kind)})
    task = c.Spec(title="T", key=key, agent=agent)
    owner.do(c.Enqueue(plan="far", source=None, actor="u", tasks=(task,)))
    [job] = owner.do(c.Claim(worker_id=worker, request_id=key)).jobs
    owner.begin(job)
    owner.log(job.task_id, 1, data)


def test_what_a_command_printed_elsewhere_stays_as_it_was(cli, owner, root):
    data = b'gr\374n\r\n{"type": "x"}\n\xff end'
    ran_elsewhere(owner, "plain", kind="command", data=data)
    assert cli("logs", "far/plain").raw == data
    assert json.loads(cli("attempt", "show", "far/plain", "--json").out)["agentKind"] == "command"
    (root / "muster.toml").write_text('[agents.same]\nkind = "claude-code"\n')
    ran_elsewhere(owner, "other", kind="command", data=data, agent="same")
    assert cli("logs", "far/other").raw == data, "an agent of the same name here is another one"


def test_what_an_agent_said_elsewhere_is_read_by_its_kind(cli, owner, root):
    (root / "muster.toml").write_text('[agents.far]\ncommand = ["true"]\n')
    data = (Path(__file__).parents[1] / "agents" / "streams" / "claude-code.tools.jsonl").read_bytes()
    ran_elsewhere(owner, "said", kind="claude-code", data=data)
    assert cli("logs", "far/said").out and '"type"' not in cli("logs", "far/said").out


def test_many_pages_of_log(cli, owner):
    api = owner.tasks()["api"]
    lines = [f"line {number}\n".encode() for number in range(450)]
    offset = 0
    for line in lines:
        owner.log(api.id, 1, line, offset=offset)
        offset += len(line)
    assert cli("logs", "api").raw == b"".join(lines)


def test_a_task_that_has_not_run_says_why(cli, owner):
    ran = cli("logs", "docs")
    assert (ran.code, ran.raw) == (0, b"")
    assert "billing/docs has not run yet: waits for tests (FAILED), api" in ran.err
    assert "attempt 1 has printed nothing" in cli("logs", "api").err


def test_output_that_is_not_there_says_whether_it_ever_was(cli, owner):
    assert "attempt 1 has printed nothing there" in cli("logs", "tests", "--stream", "stderr").err
    boot = owner.do(c.NewBoot())
    later_ms = owner.tasks()["tests"].ended_at_ms + 1
    owner.do(c.Prune(term=boot.term, logs_before_ms=later_ms, keys_before_ms=0, beats_before_ms=0, limit=500))
    assert "the 28 bytes that attempt 1 has printed are not kept any more" in cli("logs", "tests").err


def test_what_was_printed_last_before_the_worker_was_killed_is_named(cli, owner, root):
    """The store ends where its worker has read last; the file goes on."""
    api, tests = owner.tasks()["api"].id, owner.tasks()["tests"].id
    for task_id, text in ((api, b"only in the file\n"), (tests, b"collected 44 items\n3 failed\nand why\n")):
        folder = root / ".muster" / "attempts" / str(task_id) / "1"
        folder.mkdir(parents=True)
        (folder / "stdout").write_bytes(text)
    assert "taken in" not in cli("logs", "api").err, "it still runs"
    owner.do(c.Complete(task_id=api, epoch=1, exit_code=0))
    ran = cli("logs", "api")
    assert (
        f"the last 17 bytes of stdout were not taken in; they are in {root}/.muster/attempts/{api}" in ran.err
    )
    assert "printed nothing" not in ran.err
    (folder / "stdout").write_bytes(b"never taken in\ncollected 44 items\n3 failed\n")
    assert "taken in" not in cli("logs", "tests#1").err, "its last line is there"
    (folder / "stdout").write_bytes(b"never taken in\ncollected 44 items\n3 failed\nand why\n")
    assert "the last 8 bytes of stdout" in cli("logs", "tests#1").err
    (folder / "stdout").write_bytes(b"collected 44 items\n3 failed\nand why\n")
    ran = cli("logs", "tests#1")
    assert (ran.raw, "the last 8 bytes of stdout" in ran.err) == (b"collected 44 items\n3 failed\n", True)
    assert "taken in" not in cli("logs", "tests", "--stream", "stderr").err


@pytest.mark.parametrize("how", [(), ("--raw",), ("--json",)])
def test_what_the_store_leaves_out_is_where_its_worker_ran(cli, owner, root, how):
    api = owner.tasks()["api"].id
    owner.log(api, 1, b"first\n")
    owner.log(api, 1, b"last\n", offset=1006)
    left_out = "1000 bytes of stdout are left out here; the whole of it is in "
    file = f".muster/attempts/{api}/1/stdout"
    (worker,) = {one["worker"] for one in json.loads(cli("attempt", "list", "api", "--json").out)}
    assert f"{left_out}{file} of the folder in which {worker} ran on h\n" in cli("logs", "api", *how).err
    (root / file).parent.mkdir(parents=True)
    (root / file).write_bytes(b"first\n" + bytes(1000) + b"last\n")
    assert f"{left_out}{root}/{file}\n" in cli("logs", "api", *how).err


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("logs", "nope"), 3, "there is no task 'nope'"),
        (("logs", "billing/"), 3, "may be any of"),
        (("logs", "api#7"), 3, "has no attempt 7"),
        (("logs", "api", "--json", "--raw"), 2, "--raw gives bytes"),
        (("logs", "api", "--follow", "--grep", "x"), 2, "--follow is for one task"),
        (("watch", "--plan", "nope"), 3, "there is no plan 'nope'"),
    ],
)
def test_wrong_input(refused, owner, argv, code, message):
    refused(*argv, code=code, message=message)


@pytest.mark.parametrize("restored", [False, True])
def test_following_goes_on_with_the_next_attempt_until_the_task_is_final(start, owner, restored):
    """Also where numbers were left out."""
    api = owner.tasks()["api"]
    owner.log(api.id, 1, b"first\n")
    process = start("logs", "api", "-f")
    assert process.stdout.readline() == b"first\n"
    owner.log(api.id, 1, b"more\n", offset=6)
    assert process.stdout.readline() == b"more\n"
    owner.do(c.Fail(task_id=api.id, epoch=1, kind="crash", message="boom"))
    if restored:
        owner.do(c.Restored(actor="ada", incarnation="another", project="own"))
    owner.do(c.Promote(task_id=api.id))
    job = owner.claim("again")["api"]
    assert (job.epoch > 2) == restored
    owner.begin(job)
    owner.log(api.id, job.epoch, b"second\n")
    assert process.stdout.readline() == b"second\n"
    owner.do(c.Complete(task_id=api.id, epoch=job.epoch, exit_code=0))
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, b"")
    assert [line for line in err.decode().splitlines() if " of billing/api" in line] == [
        f"note: attempt {job.epoch} of billing/api"
    ]


def test_following_one_attempt_ends_with_it(start, owner):
    api = owner.tasks()["api"]
    owner.log(api.id, 1, b"first\n")
    process = start("logs", "api#1", "--follow")
    assert process.stdout.readline() == b"first\n"
    owner.do(c.Fail(task_id=api.id, epoch=1, kind="crash", message="boom"))
    assert process.communicate(timeout=PATIENCE_S)[0] == b""
    assert process.returncode == 0


def test_following_is_interrupted(start, owner):
    owner.log(owner.tasks()["api"].id, 1, b"first\n")
    process = start("logs", "api", "-f")
    assert process.stdout.readline() == b"first\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT
    assert b"Traceback" not in err


def test_following_survives_a_restart_of_the_owner(start, owner):
    api = owner.tasks()["api"]
    owner.log(api.id, 1, b"first\n")
    process = start("logs", "api#1", "-f")
    assert process.stdout.readline() == b"first\n"
    owner.stop()
    owner.start()
    owner.log(api.id, 1, b"more\n", offset=6)
    assert process.stdout.readline() == b"more\n"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"plain\ttab\n", "plain\ttab\n"),
        (b"\x1b[1;31mred\x1b[m", "\x1b[1;31mred\x1b[m"),
        (b"\x1b[38;5;8;1mgrey\x1b[48;2;8;8;8m\x1b[38:5:8m", "\x1b[38;5;8;1mgrey\x1b[48;2;8;8;8m\x1b[38:5:8m"),
        (b"\x1b[8mhid\x1b[1;08m\x1b[38;5;1;8m\x1b[8:1m", "^[[8mhid^[[1;08m^[[38;5;1;8m^[[8:1m"),
        (b"\x1b[2J\x1b]0;x\x07", "^[[2J^[]0;x^G"),
        (b"10%\r20%\r\n", "10%\n20%\n"),
        ("\u009b2J \u202e".encode(), "<009B>2J <202E>"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("grün ✓".encode(), "grün ✓"),
    ],
)
def test_what_reaches_a_terminal_moves_nothing_however_it_is_cut(data, shown):
    whole = Inert()
    assert (whole.feed(data) + whole.end()).decode() == shown
    bytewise = Inert()
    parts = [bytewise.feed(bytes([byte])) for byte in data]
    assert (b"".join(parts) + bytewise.end()).decode() == shown


def test_watch_shows_what_is_and_what_happens(start, owner):
    process = start("watch", "--plan", "billing")
    head = [process.stdout.readline().decode() for _ in range(4)]
    assert head[0] == "billing  ✓ 1 completed  ● 1 running  ○ 2 waiting  † 1 failed\n"
    assert head[1].startswith("  ● running  billing/api  ")
    other = (c.Spec(title="t", key="k"),)
    owner.do(c.Enqueue(plan="elsewhere", source=None, tasks=other, actor="me"))
    owner.do(c.Complete(task_id=owner.tasks()["api"].id, epoch=1, exit_code=0))
    assert "✓ billing/api  completed  attempt 1 completed\n" in process.stdout.readline().decode()


def test_watch_in_json_is_one_object_a_line(start, owner):
    process = start("watch", "--jsonl")
    state = json.loads(process.stdout.readline())
    assert state["type"] == "state"
    assert {task["key"] for task in state["tasks"]} == {"api", "docs", "other"}
    owner.do(c.Complete(task_id=owner.tasks()["api"].id, epoch=1, exit_code=0))
    event = json.loads(process.stdout.readline())
    assert (event["type"], event["event"], event["key"]) == ("event", "completed", "api")
    process.send_signal(signal.SIGINT)
    assert (process.wait(PATIENCE_S), process.stdout.read()) == (-signal.SIGINT, b"")


def test_watch_says_that_an_older_store_was_put_back_and_goes_on_from_its_newest_event(start, owner, root):
    store, older = root / ".muster" / "state.db", root / "older.db"

    def exchange(source: Path, target: Path) -> None:
        owner.stop()
        owner.store.close()
        assert not store.with_name("state.db-wal").exists(), "it is whole"
        shutil.copyfile(source, target)
        store.with_suffix(".witness").unlink()  # it knows of more
        owner.store = SqliteStore.open(store)
        owner.served = ServedOwner(owner.store, store)
        owner.start()

    def complete() -> None:
        owner.do(c.Complete(task_id=owner.tasks()["api"].id, epoch=1, exit_code=0))
        event = json.loads(process.stdout.readline())
        assert (event["event"], event["key"]) == ("completed", "api")

    exchange(store, older)
    process = start("watch", "--json")
    assert json.loads(process.stdout.readline())["type"] == "state"
    complete()
    exchange(older, store)
    while b"an older store was put back: this goes on after" not in (line := process.stderr.readline()):
        assert line, "it has ended"
    complete()


CLAUDE = """[agents.claude]
kind = "claude-code"
permission_mode = "acceptEdits"
[agents.shell]
command = ["true"]
"""


@pytest.fixture
def spoken(owner, root):
    """`api` is an agent's that speaks in JSON lines, cut into chunks, with stderr in between."""
    (root / "muster.toml").write_text(CLAUDE)
    owner.register("worker-zzzzzzzz", agents=("claude",), general=("claude",))
    owner.do(
        c.Enqueue(plan="said", source=None, actor="u", tasks=(c.Spec(title="T", key="it", agent="claude"),))
    )
    claim = c.Claim(worker_id="worker-zzzzzzzz", request_id="said")
    [job] = owner.do(claim).jobs
    owner.begin(job)
    data = (Path(__file__).parents[1] / "agents" / "streams" / "claude-code.tools.jsonl").read_bytes()
    for at in range(0, len(data), 700):
        owner.log(job.task_id, 1, data[at : at + 700], offset=at)
        if at == 700:
            owner.log(job.task_id, 1, b"node: deprecated\n", stream="stderr")
    return data


def test_what_an_agent_said_and_did_is_readable(cli, spoken):
    shown = cli("logs", "said/it").out.splitlines()
    assert [line for line in shown if not line.startswith("stderr")] == [
        "▸ Bash: echo hello > made.txt",
        "  (Bash completed with no output)",
        "▸ Bash: cat made.txt",
        "  hello",
        "I made it.",
        "Σ 3 turns, 3,600 tokens in, 150 out, $0.0114",
    ]
    assert "stderr: node: deprecated" in shown
    assert cli("logs", "said/it", "--raw", "--stream", "stdout").raw == spoken
    rows = [json.loads(line) for line in cli("logs", "said/it", "--json").out.splitlines()]
    assert rows[-1]["kind"] == "cost"
    [printed] = [row for row in rows if row["stream"] == "stderr"]
    of = {"ref": "said/it", "taskId": printed["taskId"], "attempt": 1}
    assert printed == of | {"stream": "stderr", "kind": "output", "tool": "", "text": "node: deprecated"}


def test_task_show_and_attempt_show_tell_it_too(cli, spoken):
    for argv in (("task", "show", "said/it"), ("attempt", "show", "said/it")):
        shown = cli(*argv).out
        assert "▸ Bash: cat made.txt" in shown
        assert "I made it." in shown
        assert "tool_use" not in shown


def test_a_text_is_found_in_all_attempts_and_tasks_of_a_plan(cli, spoken, owner):
    owner.log(owner.tasks()["api"].id, 1, b"nothing\nHELLO there\n")
    assert cli("logs", "said/it", "--grep", "made.TXT").out.splitlines() == [
        "said/it#1  Bash: echo hello > made.txt",
        "said/it#1  Bash: cat made.txt",
    ]
    assert cli("logs", "billing", "--grep", "hello").out.splitlines() == ["billing/api#1  HELLO there"]
    everything = cli("logs", "billing").out
    assert "billing/api#1  shell  running" in everything
    assert "3 failed" in everything


def test_what_comes_is_shown_as_it_comes(start, owner, spoken):
    process = start("logs", "said/it", "-f")
    for _ in range(6):
        process.stdout.readline()
    line = {"type": "assistant", "message": {"id": "m9", "content": [{"type": "text", "text": "Late news."}]}}
    owner.log(owner.tasks()["it"].id, 1, json.dumps(line).encode() + b"\n", offset=len(spoken))
    while b"Late news." not in (line := process.stdout.readline()):
        assert line


def test_an_earlier_attempt_is_named_though_numbers_were_left_out(capsys):
    """As `muster db restored` leaves out some."""
    attempts = [{"epoch": epoch, "logBytes": 0} for epoch in (1, 59660652)]
    _explain_silence(None, {"plan": "p", "key": "c"}, attempts)
    assert "earlier ones: muster logs p/c#1\n" in capsys.readouterr().err
