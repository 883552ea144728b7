"""`muster attach TASK`: a person goes on in the session of a task's agent, and gives it back afterwards."""

from __future__ import annotations

import argparse
import hashlib
import secrets
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

from muster.agents.streaming import StreamingAgent
from muster.app.agents import agent_of
from muster.app.settings import KINDS, load_config
from muster.cli.claim import env_of
from muster.cli.context import Context, after_change, connect, connect_to
from muster.cli.output import clean, note, ref_of, refused
from muster.cli.task_actions import one
from muster.client.api import task_path
from muster.config.identity import settle
from muster.config.project import Project
from muster.hosts.local_host import LocalHost
from muster.model.errors import Conflict, IllegalMove, MusterError, NotFound
from muster.model.json_value import Json
from muster.model.marks import attempt_mark
from muster.model.states import HELD, TaskStatus
from muster.model.task import BY_HAND

RENEW_S = 60.0
LEASE_S = 300.0
"""Short: nobody is to wait long for a task whose person has gone."""
STOP_S = 60.0
_LOOK_S = 1.0
_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Opens the session that the task's agent has left, with the agent's own CLI, in the task's working tree. "
        "An agent that is at it saves its work and stops first. Nobody else gets the task meanwhile; once you "
        "leave the CLI it is given back, and its agent goes on in the same session."
    )
    parser.add_argument("ref", metavar="TASK")


def run(args: argparse.Namespace) -> int:
    with connect(args) as context:
        task, project = one(context, args.ref), context.project
        argv, env, attempt = _session(context, task)
        taken, token = _take(context, task)
    held = taken["job"]["taskId"], taken["job"]["epoch"]
    tree = project.worktrees_dir / str(task["id"])
    cwd = tree if tree.is_dir() else Path(project.root)
    note(f"{ref_of(task)} is yours while this session is open: that of attempt {attempt}, in {cwd}")
    try:
        code = _open(
            argv,
            {**env, **_marks(project, taken), **env_of(context.reach, taken["job"], token)},
            cwd,
            project,
            held,
        )
    finally:
        task = _give_back(project, held)
    if not args.json:
        print(f"{clean(ref_of(task))}  given back; {clean(task['why'])}")
    return 0 if code == 0 else 1


def _session(context: Context, task: Json) -> tuple[list[str], dict[str, str], int]:
    """(command, environment, the attempt that has left it).  Raises NotFound, AgentUnfit."""
    config = load_config(context.project.root)
    detail: Json = context.api.get(task_path(task["id"]))
    for attempt in reversed(detail["attempts"]):
        found = config.agents.get(attempt["agent"])
        if not attempt["sessionKey"] or found is None:
            continue
        agent = agent_of(found, config, context.project)
        words = KINDS[found.kind].resume
        if isinstance(agent, StreamingAgent) and words:
            session = [word.format(session=attempt["sessionKey"]) for word in words]
            if model := task["model"] or found.model:
                session += ["--model", model]
            env = agent.for_a_person()
            program = shutil.which(found.command[0], path=env["PATH"]) or found.command[0]
            return [program, *found.command[1:], *session, *found.args], env, attempt["epoch"]
    raise NotFound(
        f"{ref_of(task)} has no session that a person could open", f"muster logs {ref_of(task)} --all"
    )


def _take(context: Context, task: Json) -> tuple[Json, str]:
    """The task by hand, from its agent where one is at it.  Raises IllegalMove, Conflict."""
    token = secrets.token_urlsafe(32)
    body = {"tokenHash": hashlib.sha256(token.encode()).hexdigest(), "leaseS": LEASE_S, "withMe": True}
    _refuse_held_by_hand(task)
    if task["status"] not in HELD and task["status"] != TaskStatus.PENDING:
        return _claimed(context, task, body), token
    # Paused it is nobody's: no agent is quicker than we are.
    context.post(task_path(task["id"], "pause"), take=True)
    if task["status"] in HELD:
        note(f"attempt {task['epoch']} of {ref_of(task)} saves its work and stops")
    try:
        return _claimed(context, task, body), token
    except BaseException:
        with suppress(MusterError):  # it has ended, or somebody else has moved it
            context.post(task_path(task["id"], "resume"))
        raise


def _refuse_held_by_hand(task: Json) -> None:
    """One person at a time: they would write into one session."""
    if task["status"] in HELD and task["agent"] == BY_HAND:
        raise IllegalMove(f"{ref_of(task)} is {task['why']}", "muster claim list")


def _claimed(context: Context, task: Json, body: Json) -> Json:
    """Once nobody is at it any more."""
    deadline_s = time.monotonic() + STOP_S
    while True:
        now = context.api.get(task_path(task["id"]))["task"]
        if now["status"] not in HELD and now["lingeringEpoch"] is None:
            break
        if now["epoch"] != task["epoch"]:
            _refuse_held_by_hand(now)
        if time.monotonic() > deadline_s or context.direct:
            raise Conflict(f"{ref_of(task)} has not stopped: {now['why']}", f"muster attach {ref_of(task)}")
        time.sleep(0.1)
    try:
        claimed: Json = context.post(task_path(task["id"], "claim"), **body)
    except IllegalMove as error:
        raise refused(error, ref_of(task), task["id"]) from None
    return claimed


def _marks(project: Project, taken: Json) -> dict[str, str]:
    """By these the CLI is found where we are killed: nobody is to get the task while it is open."""
    name, _, mark = attempt_mark(taken["holder"], taken["job"]["taskId"], taken["job"]["epoch"]).partition(
        "="
    )
    return {**LocalHost(settle(project)).project_marks, name: mark}


def _open(argv: list[str], env: dict[str, str], cwd: Path, project: Project, held: tuple[int, int]) -> int:
    """Until the person leaves it, also by closing the terminal.  Ctrl-C is the CLI's."""
    over = threading.Event()
    cli: list[subprocess.Popen[bytes]] = []

    def hand_on(number: int, _: object) -> None:
        for each in cli if number != signal.SIGINT else ():  # not SIG_IGN, which the CLI would inherit
            each.send_signal(number)

    before = {number: signal.signal(number, hand_on) for number in _SIGNALS}
    renewing = threading.Thread(target=_renew, args=(project, held, over), daemon=True)
    # Only this thread is to get them: another one's would not wake it while it waits for the CLI.
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    renewing.start()
    signal.pthread_sigmask(signal.SIG_SETMASK, usual)
    try:
        cli.append(subprocess.Popen(argv, env=env, cwd=cwd))
        return cli[0].wait()
    except OSError as error:
        raise NotFound(f"{argv[0]} cannot be started: {error.strerror}", "muster doctor") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        over.set()
        renewing.join(_LOOK_S)


def _renew(project: Project, held: tuple[int, int], over: threading.Event) -> None:
    while not over.wait(RENEW_S):
        try:
            with connect_to(project) as context:
                context.post(task_path(held[0], "claim/renew"), epoch=held[1], leaseS=LEASE_S)
        except MusterError as error:
            note(f"the task's lease was not renewed: {error.message}")


def _give_back(project: Project, held: tuple[int, int]) -> Json:
    with connect_to(project) as context:
        try:
            context.post(task_path(held[0], "claim/release"), epoch=held[1], outcome="released")
        except MusterError as error:  # it was done, or taken away, meanwhile
            note(error.message)
        return after_change(context, held[0], "left")
