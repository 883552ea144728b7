"""Secrets of a real crew: who has them while its agents work, and where they are found afterwards: nowhere."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from git_projects import commit_first, git, make_project
from test_run import started, until

from hook_receiver import Hook
from muster_command import MUSTER
from muster_command import run_muster as muster
from patience import PATIENCE_S

CANARY = 'ca"nary/w+rd-0123456789-äé'
INPUT = "in/put+canary-0123456789-ßü"
"""The same in a task's input context."""
SETTINGS = """\
agent = "shell"
[webhooks]
private = true
[git]
setup = "printenv CANARY && exit 3 || exit 0"
[agents.leaky]
command = ["sh"]
prompt = "script"
secrets = ["CANARY"]
check = "! printenv CANARY"
[agents.given]
command = ["sh"]
prompt = "script"
check = "! grep -rl 0[1]23456789-ß ."
review = "judge"
[agents.talker]
kind = "claude-code"
command = ["TALKER"]
permission_mode = "bypassPermissions"
set = { IS_SANDBOX = "1" }
secrets = ["CANARY"]
check = "none"
[agents.judge]
command = ["sh", "-c", "printenv CANARY | wc -c; echo ACCEPT"]
secrets = ["CANARY"]
prompt = "none"
"""
PLAN = """\
- [ ] Print it {#print agent=leaky review=judge}
  ```sh
  echo "plain $CANARY"; env
  printf '%s' "$CANARY" | head -c 12; sleep 1; printf '%s\\n' "$CANARY" | tail -c +13
  printf 'user:%s' "$CANARY" | base64; printf '%s' "$CANARY" | od -An -tx1 | tr -d ' \\n'; echo
  python3 -c 'import os, urllib.parse as u; v = os.environ["CANARY"]; print(ascii(v), u.quote(v, safe=""))'
  echo "on stderr $CANARY" >&2
  muster report progress 40 --step "at $CANARY"; muster report checkpoint --text "$CANARY"
  muster report artifact "$CANARY" "https://example.org/$CANARY"
  printf 'kept %s' "$CANARY" > left; muster report artifact left left; rm left
  muster task add "about $CANARY" --plan later --key x --prompt "true # $CANARY"
  touch $MUSTER_ROOT/print; while [ ! -e $MUSTER_ROOT/go ]; do sleep 0.05; done
  python3 -c 'import json, os; print(json.dumps({"said": os.environ["CANARY"]}))' > $MUSTER_RESULT
  ```
- [ ] Fail with it {#fail agent=leaky retries=0}
  ```sh
  echo "no access with $CANARY" >&2; exit 3
  ```
- [ ] Say that it has failed with it {#say agent=leaky retries=0}
  ```sh
  python3 ask.py >> $MUSTER_ROOT/refused
  muster report fail --kind invalid "cannot with $CANARY"
  ```
- [ ] Talk about it {#talk agent=talker}
- [ ] Print what it is given {#given agent=given}
  ```sh
  F="$MUSTER_INPUT_CONTEXT_FILE"
  IN=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["password"])' < "$F")
  cat "$F"; echo "plain $IN"; printf 'user:%s' "$IN" | base64; echo "on stderr $IN" >&2
  python3 -c 'import sys; print(ascii(sys.stdin.read()))' < "$F"
  printf '%s' "$IN" | head -c 12; sleep 1; printf '%s\\n' "$IN" | tail -c +13
  muster report checkpoint - < "$F"; muster report progress 40 --step "at $IN"
  muster report artifact "$IN" "https://example.org/$IN"
  printf 'kept %s' "$IN" > left; muster report artifact left left; rm left
  printf '{"token": "%s"}' "$IN" | muster task add "about $IN" --plan later --key y --input-context -
  touch made-by-given; printf '{"said": "%s"}' "$IN" > $MUSTER_RESULT
  touch $MUSTER_ROOT/given; while [ ! -e $MUSTER_ROOT/go ]; do sleep 0.05; done
  ```
- [ ] Fail with what it is given {#fell agent=given retries=0}
  ```sh
  echo "no access with $(cat "$MUSTER_INPUT_CONTEXT_FILE")" >&2; exit 3
  ```
- [ ] Ask about it {#ask agent=leaky}
  ```sh
  muster report ask "is $CANARY right?"
  ```
"""
TALKER = """\
#!{python}
import json, os, pathlib, sys, time
def say(**line): print(json.dumps(line), flush=True)
used, root = {{"type": "tool_use", "name": "Bash"}}, pathlib.Path(os.environ["MUSTER_ROOT"])
sys.stdin.readline()
say(type="system", subtype="init", session_id=sys.argv[-1])
used["input"] = {{"command": "echo " + os.environ["CANARY"]}}
say(type="assistant", session_id=sys.argv[-1], message={{"content": [used]}})
(root / "talk").touch(), pathlib.Path("made").touch()
while not (root / "go").exists(): time.sleep(0.05)
say(type="result", subtype="success", is_error=False, num_turns=1, session_id=sys.argv[-1],
    result="It is " + os.environ["CANARY"], permission_denials=[], total_cost_usd=0, modelUsage={{}})
"""
ASKER = """\
import json, os, socket
body = dict(taskId=int(os.environ["MUSTER_TASK_ID"]), epoch=int(os.environ["MUSTER_EPOCH"]))
body = json.dumps(dict(body, proof=os.environ["MUSTER_TOKEN"].partition(".")[2], names=["CANARY"]))
with socket.socket(socket.AF_UNIX) as line:
    line.connect(os.environ["MUSTER_SOCKET"])
    line.sendall(f"POST /worker/v1/secrets HTTP/1.1\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n{body}".encode())
    print(line.recv(65536).decode())
"""
ENDS = {
    "print": "COMPLETED",
    "fail": "FAILED",
    "say": "FAILED",
    "talk": "COMPLETED",
    "ask": "PAUSED",
    "given": "COMPLETED",
    "fell": "FAILED",
}
ASKED = (
    *(("logs", ref) for ref in ("print", "talk", "fail", "say", "ask", "given", "fell")),
    ("artifact", "get", "print", "left"),
    ("artifact", "get", "given", "left"),
    *(("task", "show", ref, "--json") for ref in (*ENDS, "later/x")),
    *(("audit", "list", "--json"), ("inbox",), ("status",), ("secrets", "list", "--json")),
)
FORMS = [
    form
    for value in (CANARY, INPUT)
    for form in (
        value.encode(),
        json.dumps(value)[1:-1].encode(),
        json.dumps(value, ensure_ascii=False)[1:-1].encode(),
        quote(value, safe="").encode(),
        value.encode().hex().encode(),
        base64.b64encode(b"user:" + value.encode())[8:-8],
        b"0123456789",
    )
]


def test_an_agents_secret_is_its_own(tmp_path: Path, hook: Hook) -> None:
    hook.answers.set()
    project = make_project(
        tmp_path / "project",
        config=SETTINGS.replace("TALKER", str(tmp_path / "project" / "talker")),
        plan=PLAN,
    )
    (project / "talker").write_text(TALKER.format(python=sys.executable))
    (project / "talker").chmod(0o755)
    (project / "ask.py").write_text(ASKER)
    commit_first(project, "talker", "ask.py")
    webhook = str(json.loads(muster(project, "webhook", "add", hook.url, "--json").stdout)["id"])
    assert muster(project, "plan", "add", "plan.md", "--order", "free").returncode == 0
    for ref in ("given", "fell"):
        edit = [*MUSTER, "task", "edit", ref, "--input-context", "-", "--agent", "given"]
        context = json.dumps({"password": INPUT, "host": "here"})
        subprocess.run(edit, cwd=project, input=context, text=True, check=True, stdout=subprocess.DEVNULL)
    with started(project, "up", "--workers", "3") as crew:
        until(lambda: "muster secrets set CANARY" in muster(project, "why", "print").stdout, "it waits")
        said = [*MUSTER, "secrets", "set", "CANARY"]
        subprocess.run(said, cwd=project, input=CANARY, text=True, check=True, stdout=subprocess.DEVNULL)
        at_work = {"print", "talk", "given"}
        until(lambda: at_work <= {path.name for path in project.iterdir()}, "they are at work")
        assert {"sh", "talker"} <= _who_has_it() <= {"sh", "sleep", "talker"}
        _look_for_it(project, but=".muster/attempts")  # what is being printed
        assert muster(project, "artifact", "get", "print", "left").stdout.startswith("kept ****")
        (project / "go").touch()
        until(lambda: [_status(project, ref) for ref in ENDS] == list(ENDS.values()), "they have ended")
        until(lambda: _told(hook).count("task.needs_person") == 4, "all is told")
        assert "secrets are for its worker" in (project / "refused").read_text()
        _look_for_it(project)
        answers = [muster(project, *words).stdout for words in (*ASKED, ("webhook", "messages", webhook))]
        assert muster(project, "down").returncode == 0
        assert crew.wait(PATIENCE_S) == 0
        assert crew.stdout is not None
        answers += [crew.stdout.read(), git(project, "log", "--all", "-p")]
    assert "plain ****" in answers[0] and "on stderr ****" in answers[0]
    assert f"{len(CANARY.encode()) + 1}\n" in answers[0], "its reviewer had it as well"
    assert "Bash: echo ****" in answers[1]
    assert "plain ****" in answers[5] and "on stderr ****" in answers[5] and "no access with" in answers[6]
    for answer in (*answers, *(body.decode() for _, body in hook.got)):
        assert [form for form in FORMS if form in answer.encode()] == []
    _look_for_it(project)


def _told(hook: Hook) -> list[str]:
    return [json.loads(body)["event"] for _, body in hook.got]


def _status(folder: Path, ref: str) -> str:
    return str(json.loads(muster(folder, "task", "show", ref, "--json").stdout)["task"]["status"])


def _who_has_it() -> set[str]:
    """The programs with the value in their arguments or their environment."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            assert INPUT.encode() not in words, process
            if CANARY.encode() in words:
                assert CANARY.encode() not in (process / "cmdline").read_bytes()
                found.add((process / "comm").read_text().strip())
        except OSError:
            continue  # it has ended
    return found


def _look_for_it(folder: Path, but: str = "nothing") -> None:
    """In the store with its WAL, logs, kept output, and the tree."""
    assert (folder / ".muster" / "muster.log").exists()
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_relative_to(folder / but):
            data = path.read_bytes()
            assert [form for form in FORMS if form in data] == [], path
