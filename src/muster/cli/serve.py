"""`muster serve`: as `up`, and the API for others besides, on an address of this machine."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import closing, suppress

from muster.app.crew import READY_S
from muster.app.network import bind, check
from muster.app.parts import last_words, make_state_dir, python_module
from muster.app.runtime import check as check_runtime
from muster.app.settings import load_config
from muster.app.shared_store import require_driver
from muster.cli import up
from muster.cli.context import actor, connect_to, project_of, user_name
from muster.cli.fields import answer
from muster.cli.output import note
from muster.cli.worker import worker_count
from muster.client.api import Api
from muster.client.http import Connection, answers
from muster.config.contexts import SERVER
from muster.config.project import Project
from muster.config.settings import Config, ServeSettings
from muster.config.values import has_password
from muster.config.variables import variable_of
from muster.hosts.file_lock import holder
from muster.hosts.log_file import place_in
from muster.hosts.logs import JSON
from muster.hosts.plain_files import replace_plain
from muster.model.access import Role
from muster.model.errors import BadInput, Conflict, MusterError, StoreFault

END_S = 10.0
"""So long a server that did not start in time may take to end."""
USUAL = "127.0.0.1:7420"
_OPTIONS = {
    "listen": "serve.listen",
    "tls_cert": "serve.tls_cert",
    "tls_key": "serve.tls_key",
    "runtime": "runtime.url",
    "store": "serve.store",
}
"""The keys that they stand for."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Starts the crew as `muster up` does, and answers HTTP for others: see docs/server.md. "
        "What `[serve]` of muster.toml says holds where no option says otherwise."
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help=f"where to listen (default: as configured, or {USUAL})"
    )
    parser.add_argument(
        "--tls-cert", metavar="FILE", help="certificate in PEM; with --tls-key the API speaks TLS"
    )
    parser.add_argument("--tls-key", metavar="FILE", help="the key of that")
    parser.add_argument(
        "--without-login", action="store_true", help="whoever reaches it is you: on a loopback address only"
    )
    parser.add_argument(
        "--runtime",
        metavar="URL",
        help="a Valkey for wake-ups, live events and presence, like valkey://HOST:6379/0; it may be away at any "
        "time.  One with a password stands in MUSTER_RUNTIME_URL",
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        help="postgresql://USER@HOST/DATABASE, which any number of servers share; no worker is started then, "
        "and the password comes from [serve] store_file, MUSTER_SERVE_STORE, PGPASSWORD or ~/.pgpass",
    )
    parser.add_argument(
        "--workers", type=worker_count, metavar="N", help="worker processes (default: as configured)"
    )
    parser.add_argument(
        "--daemon", action="store_true", help="in the background, output to .muster/muster.log"
    )


def run(args: argparse.Namespace) -> int:
    _leave_server_out(args)
    project = project_of(args)
    if args.runtime is not None and has_password(args.runtime):
        raise BadInput(
            "--runtime holds a password, which everybody on this machine could see; nothing was started",
            "export MUSTER_RUNTIME_URL=valkey://:PASSWORD@HOST:6379/0, or url of [runtime] in muster.toml",
        )
    if args.store is not None and has_password(args.store):
        raise BadInput(
            "--store holds a password, which everybody on this machine could see; nothing was started",
            "put the address into a file, and name it as store_file in [serve]; or set MUSTER_SERVE_STORE",
        )
    given = {option: said for option in _OPTIONS if (said := getattr(args, option)) is not None}
    # Read as options first: nobody is told of variables that only we have set.
    load_config(
        project.root,
        options=[(f"--{name.replace('_', '-')}", _OPTIONS[name], said) for name, said in given.items()],
    )
    # The owner is a process of its own and reads its settings itself: what was said here stands above its files.
    os.environ.update({variable_of(_OPTIONS[name]): said for name, said in given.items()})
    if args.without_login:
        os.environ["MUSTER_SERVE_LOGIN"] = "false"
    if not load_config(project.root).serve.listen:
        os.environ["MUSTER_SERVE_LISTEN"] = USUAL
    config = load_config(project.root)
    settings = config.serve
    check(settings)
    check_runtime(config.runtime)
    args.serving = settings.url
    if settings.shared:
        return _serve_shared(args, project)
    listens_at = _listens_at(project)
    _refuse_two(project, settings, listens_at)
    try:
        _try(settings.listen)
    except Conflict:
        # By our owner, whose supervisor has died: it is taken over.
        if _port(listens_at or "") != _port(settings.listen):
            raise
    if settings.login:
        args.first_token = _first_token(project, show=_to_a_person(args, config))
    return up.run(args)


def _leave_server_out(args: argparse.Namespace) -> None:
    """A server is one of here: a variable that says which other one commands ask is not meant for it."""
    asks = os.environ.get(SERVER)
    if asks and args.store and args.listen and not (args.server or args.context or args.root):
        del os.environ[SERVER]
        note(f"{SERVER} ({asks}) is what other commands ask; this server is one of its own")


def _try(listen: str) -> None:
    """To say now what a server could only say in its log.  Raises Conflict where another program listens."""
    for listening in bind(listen):
        listening.close()


def _to_a_person(args: argparse.Namespace, config: Config) -> bool:
    return sys.stdout.isatty() and not args.json and config.log.format != JSON


def _serve_shared(args: argparse.Namespace, project: Project) -> int:
    """One of several servers: this very process, which whatever has started it starts again."""
    if args.workers:
        raise BadInput(
            "a server that shares its store starts no workers; nothing was started",
            "muster worker start --server URL, in a folder for them",
        )
    pid = holder(project.owner_lock)
    if pid is not None:
        raise Conflict(
            f"a server runs in {project.folder} already (pid {pid}); nothing was started", "muster down"
        )
    _try(load_config(project.root).serve.listen)
    if args.daemon:
        return _in_background(args, project)
    require_driver()
    from muster.app.shared_server import run_server

    config = load_config(project.root)

    def said(url: str) -> None:
        answer(args, {"serving": url}, f"Serving  {url}; `muster down` or Ctrl-C stops this server")
        sys.stdout.flush()

    def first_token(secret: str) -> None:
        if path := _keep_token(project, secret, show=_to_a_person(args, config)):
            answer(args, {"firstToken": path}, f"Your token is in {path}")

    run_server(project, config, who=user_name(os.getuid()), said=said, first_token=first_token)
    return answer(args, {"ended": True}, "Stopped. Other servers of its store go on.")


def _in_background(args: argparse.Namespace, project: Project) -> int:
    make_state_dir(project)
    with project.log_file.open("ab") as log_file:
        begins = place_in(log_file.fileno())
        process = subprocess.Popen(
            [*python_module("muster.cli.main"), "-C", str(project.root), "serve"],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            start_new_session=True,
            cwd=project.root,
        )
    deadline_s = time.monotonic() + READY_S
    while not _listens_at(project):
        if process.poll() is not None or time.monotonic() > deadline_s:
            _end(process)
            words = last_words(project.log_file, begins)
            raise StoreFault(f"the server did not start: {words}", "muster doctor")
        time.sleep(0.05)  # nobody tells that it listens
    process.returncode = 0  # it outlives this command on purpose
    told = f"Up       server pid {process.pid}; `muster down` stops it"
    return answer(args, {"server": process.pid}, told, f"Serving  {args.serving}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """What is said not to have started must not come up later, and lead."""
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _port(at: str) -> str:
    return at.rpartition(":")[2]


def _listens_at(project: Project) -> str | None:
    """Where others reach the owner that is up; empty: nowhere, None: there is none that tells."""
    if not answers(project.socket):
        return None
    with suppress(MusterError), closing(Api(Connection(project.socket))) as api:
        at: str = api.get("/api/v1/owner").get("listening", "")
        return at
    return None


def _refuse_two(project: Project, settings: ServeSettings, listens_at: str | None) -> None:
    """Raises Conflict where a living process supervises this crew: what it listens to is not for us to change."""
    if listens_at == settings.url:
        up.refuse_two(project)
    supervisor = holder(project.supervisor_lock)
    if supervisor is not None:
        how = f"and listens at {listens_at}" if listens_at else "and nobody but you reaches it"
        raise Conflict(
            f"the crew of {project.root} is up already (pid {supervisor}), {how}; nothing was started",
            f"muster down, then muster serve --listen {settings.listen}",
        )


def _first_token(project: Project, *, show: bool) -> str:
    """Somebody has to be able to log in: an OWNER's token, shown once to a person, else left in a file.

    Its path; empty where it was shown, or where there are tokens.
    """
    with connect_to(project) as context:
        api = context.api
        if api.get("/api/v1/tokens"):
            return ""
        who = user_name(os.getuid())
        if who not in {member["name"] for member in api.get("/api/v1/members")}:
            api.post("/api/v1/members", {"actor": actor(), "name": who, "role": Role.OWNER})
        body = {"actor": actor(), "name": "first", "member": who, "role": Role.OWNER}
        secret = api.post("/api/v1/tokens", body)["token"]
    return _keep_token(project, secret, show=show)


def _keep_token(project: Project, secret: str, *, show: bool) -> str:
    """Where it is left; empty: it was shown."""
    if show:
        print(f"Your token, shown this once: {secret}", flush=True)
        return ""
    path = project.first_token_file
    replace_plain(path, secret.encode() + b"\n")
    return str(path)
