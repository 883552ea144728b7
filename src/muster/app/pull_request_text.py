"""What a pull request says of the work in it: each task with its result, its cost and its check."""

from __future__ import annotations

import re

from muster.app.pull_request_targets import Target
from muster.client.api import Api, plan_path, task_path
from muster.config.settings import Config
from muster.hosts.user_git import UserGit
from muster.model.json_value import Json
from muster.model.states import TaskStatus
from muster.worker.checks import NOTHING

TASKS_MAX = 200
WORDS_MAX = 300
_TRAILER = re.compile(r"(Task|Attempt|Agent|Cost): ")


def text_for(api: Api, git: UserGit, config: Config, target: Target, *, plan: str, base: str) -> str:
    words = _last_words(git, target.commit, base)
    if target.task:
        task_id = api.get("/api/v1/resolve", {"ref": target.ref})["taskId"]
        lines = [_line(api.get(task_path(task_id)), config, words)]
        head = f"Task `{target.ref}` of plan `{plan}`."
    else:
        tasks = list(api.rows("/api/v1/agent-tasks", {"plan": plan}))
        wanted = [task for task in tasks if task["status"] not in {TaskStatus.CANCELLED, TaskStatus.ARCHIVED}]
        done = sum(task["status"] == TaskStatus.COMPLETED for task in wanted)
        head = f"Plan `{plan}`: {done} of {len(wanted)} tasks are done."
        lines = [_line(api.get(task_path(task["id"])), config, words) for task in wanted[:TASKS_MAX]]
        if len(wanted) > TASKS_MAX:
            lines.append(f"- and {len(wanted) - TASKS_MAX} more")
        failures = api.get(plan_path(plan))["plan"]["paused"]
        head += f" It is paused ({failures})." if failures else ""
    return "\n".join([head, "", *lines, ""])


def _line(detail: Json, config: Config, words: dict[str, str]) -> str:
    task = detail["task"]
    ref = f"{task['plan']}/{task['key']}"
    done = task["status"] == TaskStatus.COMPLETED
    said = words.get(ref) or detail["result"] or "" if done else task["why"]
    facts = filter(None, (task["lastAgent"], _cost(detail), _check(detail, config) if done else ""))
    parts = [f"**{_plain(task['title'])}** (`{ref}`)", _plain(said), "_" + ", ".join(facts) + "_"]
    return f"- [{'x' if done else ' '}] " + "<br>".join(part for part in parts if part.strip("_"))


def _cost(detail: Json) -> str:
    """Of all its attempts."""
    usages = [attempt["usage"] for attempt in detail["attempts"] if attempt["usage"]]
    if not usages:
        return ""
    about = "about " if any(usage["estimated"] for usage in usages) else ""
    costs = [usage["costMicrousd"] for usage in usages if usage["costMicrousd"] is not None]
    if costs:
        return f"{about}${sum(costs) / 1e6:.2f}"
    return f"{about}{sum(usage['inputTokens'] + usage['outputTokens'] for usage in usages):,} tokens"


def _check(detail: Json, config: Config) -> str:
    """What it has passed."""
    task = detail["task"]
    accepted = [event for event in detail["events"] if event["event"] == "accepted"]
    if accepted and accepted[-1]["generation"] == task["generation"]:
        return f"accepted by {accepted[-1]['actor'].removeprefix('user:')} without the check"
    agent = config.agents.get(task["lastAgent"] or "")
    own = agent.check if agent is not None and agent.check is not None else config.task.check
    check = task["checkCommand"] or own
    return f"passed `{_plain(check)}`" if check and check != NOTHING else ""


def _last_words(git: UserGit, commit: str, base: str) -> dict[str, str]:
    """What the agents said at the end of the work that is in it, by `plan/key`."""
    form = "--format=%(trailers:key=Task,valueonly,separator=%x20)%x00%b%x01"
    since = (f"^{base}",) if base else ("-200",)
    found: dict[str, str] = {}
    for one in git.run("log", form, commit, *since).split("\x01"):
        task, _, body = one.strip("\n").partition("\0")
        lines = [line for line in body.splitlines() if not _TRAILER.match(line)]
        if task and (words := " ".join(lines).strip()):
            found.setdefault(task, words)
    return found


def _plain(text: str) -> str:
    """One line that calls nobody: a name behind an `@` would be told of it."""
    line = " ".join(text.split()).replace("@", "@\u200b").replace("<", "&lt;")
    return line if len(line) <= WORDS_MAX else f"{line[:WORDS_MAX]}..."
