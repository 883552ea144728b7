"""`muster agent`: what agents there are, what they may do, and whether they can."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from operator import itemgetter

from muster.app.settings import load_config
from muster.cli.context import connect, project_of, server_of
from muster.cli.fields import add_fields, answer, names_of, print_one, print_rows, refuse_unknown
from muster.cli.output import Screen, age, clean, now_ms, usage_words
from muster.cli.status import pool_word
from muster.cli.values import number
from muster.client.api import path_of
from muster.config.project import Project
from muster.config.settings import AgentConfig, Config
from muster.model.errors import MusterError, NotFound
from muster.model.json_value import Json
from muster.model.kinds import SECONDS_MAX
from muster.model.numbers import NUMBER_MAX

TIMEOUT_S = 120

_LOOKED = ("name", "kind", "provider", "about", "problem", "fix")
_TRIED = ("version", "ok", "answer", "errorKind", "error", "seconds", "usage")
"""What is told about an agent, and what more after it was tried."""


_WHAT = "WHAT IT IS, OR WHAT IS MISSING"
_CELLS: Mapping[str, Callable[[Json], object]] = {
    "AGENT": itemgetter("name"),
    "KIND": itemgetter("kind"),
    _WHAT: lambda look: _said(look),  # noqa: PLW0108 - it stands further down
}
_FAR_CELLS: Mapping[str, Callable[[Json], object]] = {
    "AGENT": itemgetter("name"),
    "STATUS": itemgetter("status"),
    "WORKERS": itemgetter("workers"),
    "PROBLEM": lambda agent: agent["problem"] or "-",
}
_PERMISSION_CELLS: Mapping[str, Callable[[Json], object]] = {
    "N": itemgetter("number"),
    "IT": lambda row: "may" if row["allow"] else "may not",
    "AGENT": itemgetter("agent"),
    "PLAN": itemgetter("plan"),
    "COMMAND": itemgetter("command"),
    "BY": itemgetter("by"),
    "SINCE": lambda row: age(now_ms() - row["atMs"]),
}


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", act=_list, help="the agents of this project")
    shown = verbs.add_parser("show", act=_show, help="how one is started, and what it may do")
    shown.add_argument("name", metavar="NAME")
    add_fields(listing)
    add_fields(shown)
    resumed = verbs.add_parser("resume", act=_resume, help="let a provider's agents be tried again")
    resumed.add_argument("name", metavar="NAME", help="of the provider, or of one of its agents")
    allowed = verbs.add_parser(
        "allowed", act=_allowed, help="what `muster answer --always` has decided for all tasks of a plan"
    )
    allowed.add_argument("name", metavar="NAME", nargs="?", help="of this agent only")
    allowed.add_argument(
        "--revoke", type=number(1, NUMBER_MAX), metavar="N", help="ask about number N again from now on"
    )
    add_fields(allowed)
    tried = verbs.add_parser(
        "test", act=_test, help="give it one trivial prompt; with a paid provider this costs a little"
    )
    tried.add_argument("name", metavar="NAME")
    add_fields(tried)
    tried.add_argument(
        "--timeout",
        type=number(1, SECONDS_MAX),
        default=TIMEOUT_S,
        metavar="SECONDS",
        help=f"give up after this ({TIMEOUT_S})",
    )


def _agent(args: argparse.Namespace) -> tuple[AgentConfig, Config, Project]:
    """The one that is named.  Raises NotFound."""
    project = project_of(args)
    config = load_config(project.root)
    agent = config.agents.get(args.name)
    if agent is None:
        known = ", ".join(sorted(config.agents))
        raise NotFound(f"no agent is called {args.name!r}; there are {known}", "muster agent list")
    return agent, config, project


def _look(agent: AgentConfig, config: Config, project: Project) -> Json:
    """What can be said without running it."""
    from muster.app.agents import agent_of

    look: Json = dict.fromkeys(_LOOKED, "")
    look |= {"name": agent.name, "kind": agent.kind, "provider": agent.pool}
    try:
        made = agent_of(agent, config, project)
        look["about"] = made.about
        made.check()
    except MusterError as error:
        look |= {"problem": error.message, "fix": error.hint}
    return look


def _list(args: argparse.Namespace) -> int:
    if server_of(args) is not None:
        return _list_far(args)
    project = project_of(args)
    config = load_config(project.root)
    closed = _closed(args, project)
    looks = [
        {**_look(agent, config, project), "closed": closed.get(agent.pool)}
        for _, agent in sorted(config.agents.items())
    ]

    def state(look: Json) -> str:
        return "attempt failed" if look["problem"] else "waiting" if look["closed"] else "completed"

    def show(screen: Screen) -> None:
        screen.table(looks, _CELLS, give=_WHAT, look=state)

    print_rows(args, looks, show, names=tuple)  # `shell` is always there
    return 0


def _list_far(args: argparse.Namespace) -> int:
    """Those of the workers that are up there."""
    with connect(args) as context:
        agents: list[Json] = context.api.get("/api/v1/status")["status"]["agents"]

    def state(agent: Json) -> str:
        return "attempt failed" if agent["problem"] else "completed"

    def show(screen: Screen) -> None:
        screen.table(agents, _FAR_CELLS, give="PROBLEM", look=state, empty="no worker is up")

    print_rows(args, agents, show, names=lambda: names_of("AgentView"))
    return 0


def _said(look: Json) -> str:
    """What keeps it from working; else what it is."""
    closed = f"{look['provider']}: {pool_word(look['closed'])}" if look["closed"] else ""
    return look["problem"] or closed or look["about"]


def _closed(args: argparse.Namespace, project: Project) -> Json:
    """The providers that take no requests.  A project that was never up has none, and gets no store by this."""
    if not project.store.exists():
        return {}
    try:
        with connect(args) as context:
            found: Json = context.api.get("/api/v1/pools")
            return found
    except MusterError:
        return {}  # what the agents are can be told all the same


def _show(args: argparse.Namespace) -> int:
    agent, config, project = _agent(args)
    look: Json = _look(agent, config, project) | {
        "command": list(agent.command),
        "model": agent.model,
        "permissionMode": agent.permission_mode,
        "maxBudgetUsd": agent.max_budget_usd,
        "args": list(agent.args),
        # Values of variables may be secret: their names are enough.
        "env": sorted({*agent.env_names, *agent.env}),
        "secrets": list(agent.secrets),
        "slots": agent.slots,
        "capabilities": list(agent.capabilities),
        "profiles": list(agent.profiles),
    }
    named = {
        "agent": f"{look['name']}, kind {look['kind']}",
        "does": look["about"],
        "problem": look["problem"] and f"{look['problem']}; fix: {look['fix']}",
        "provider": look["provider"],
        "model": look["model"] or "",
        "permissions": look["permissionMode"] or "",
        "budget": "" if agent.max_budget_usd is None else f"${agent.max_budget_usd:g} a run",
        "args": " ".join(agent.args),
        "env": ", ".join(look["env"]),
        "secrets": ", ".join(look["secrets"]),
        "slots": "" if agent.slots is None else str(agent.slots),
    }
    print_one(args, look, lambda screen: _told(named, screen))
    return 0


def _resume(args: argparse.Namespace) -> int:
    with connect(args) as context:
        config = context.settings()
        closed = context.api.get("/api/v1/pools")
    named = config.agents.get(args.name)
    pools = {agent.pool for agent in config.agents.values()} | closed.keys()
    if named is None and args.name not in pools:
        known = ", ".join(sorted(pools | config.agents.keys()))
        raise NotFound(f"no agent or provider is called {args.name!r}; there are {known}", "muster status")
    pool = args.name if named is None else named.pool
    with connect(args) as context:
        context.post(path_of("pools", pool, "open"))
    agents = [agent.name for _, agent in sorted(config.agents.items()) if agent.pool == pool]
    told = f"{clean(pool)}  may be tried again" + (f", by {clean(', '.join(agents))}" if agents else "")
    return answer(args, {"provider": pool, "agents": agents, "open": True}, told)


def _allowed(args: argparse.Namespace) -> int:
    with connect(args) as context:
        if args.revoke is not None:
            context.post(path_of("permissions", str(args.revoke), "revoke"))
        found = context.api.get("/api/v1/permissions")
        plans = {plan["id"]: plan["name"] for plan in context.api.get("/api/v1/status")["status"]["plans"]}
    rows = [
        {**one, "plan": plans.get(one["planId"], "")} for one in found if args.name in (None, one["agent"])
    ]

    def show(screen: Screen) -> None:
        empty = "nothing stands: muster answer REF --allow --always"
        screen.table(rows, _PERMISSION_CELLS, give="COMMAND", look=lambda _: "archived", empty=empty)

    print_rows(args, rows, show, names=tuple)
    return 0


def _test(args: argparse.Namespace) -> int:
    from muster.app.agent_check import failure_hint, try_agent, version_of
    from muster.app.agents import agent_of, home_of
    from muster.ports.agent import Failed

    refuse_unknown(args, lambda: (*_LOOKED, *_TRIED))
    agent, config, project = _agent(args)
    look = _look(agent, config, project)
    if look["problem"]:
        raise MusterError(look["problem"], look["fix"])
    made = agent_of(agent, config, project)
    tried = try_agent(made, float(args.timeout), script=agent.prompt == "script")
    failed = tried.outcome if isinstance(tried.outcome, Failed) else None
    usage: Json | None = None
    if tried.usage is not None:
        import msgspec

        usage = msgspec.to_builtins(tried.usage)
    result: Json = look | {
        "version": version_of(agent, home_of(agent, project)),
        "ok": failed is None,
        "answer": tried.said[:1000],
        "errorKind": failed.kind.value if failed else None,
        "error": failed.message if failed else "",
        "fix": failure_hint(agent, failed) if failed else "",
        "seconds": round(tried.seconds, 2),
        "usage": usage,
    }
    print_one(args, result, lambda screen: _tell(result, screen))
    return 0 if failed is None else 1


def _tell(result: Json, screen: Screen) -> None:
    named = {
        "agent": f"{result['name']}, kind {result['kind']}",
        "does": result["about"],
        "version": result["version"],
        "answer": result["answer"] if result["ok"] else "",
        "failed": "" if result["ok"] else f"{result['errorKind']}: {result['error']}",
        "fix": result["fix"],
        "took": f"{result['seconds']:.1f} s",
        "used": usage_words(result["usage"]) if result["usage"] else "",
    }
    _told(named, screen)


def _told(named: Json, screen: Screen) -> None:
    screen.fields([(name, clean(str(value))) for name, value in named.items() if value])
