"""Which project a command is about, and who answers for it."""

from __future__ import annotations

import gc
import os
import time
from contextlib import ExitStack, closing, suppress

from muster.cli.output import note, print_error, shell_word
from muster.client.api import Api, path_of, task_path
from muster.client.api import patiently as repeated
from muster.client.http import REPLY_S, Connection
from muster.client.remote import ServerPlaces
from muster.config.contexts import current_server, server_in
from muster.config.project import STATE_DIR_NAME, Project, find_project
from muster.hosts.full_disk import full_disk
from muster.model.errors import (
    BadInput,
    MusterError,
    NotAllowed,
    NotFound,
    OwnerUnavailable,
    StoreMoved,
    StoreRewound,
    Unavailable,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager
    from typing import Any, Self, TypeVar

    from muster.app.direct import DirectTransport
    from muster.client.api import Transport
    from muster.client.http import ClientRequest
    from muster.config.contexts import KnownServer
    from muster.config.settings import Config
    from muster.hosts.file_lock import LockWait
    from muster.model.json_value import Json

    T = TypeVar("T")

AWAY_S = 60.0
"""How long a restart of the owner may take before a command that follows it gives up."""
LAST_HEARD = "what ran last is shown as it was last heard of, until a crew is up"
WAIT_S = 25.0
"""How long a request is held by the owner while there is no news."""
_POLL_S = 0.05


class Context:
    """A connection to whoever is asked; use `with connect(args) as context`."""

    def __init__(self, stack: ExitStack, transport: Transport, headers: Mapping[str, str]) -> None:
        self.transport = transport
        self.headers = dict(headers)
        """As whom it asks: inside of a task its attempt."""
        self.api = Api(transport, headers)
        self._stack = stack
        self.direct = False
        """Nobody is up: this very process holds the store until the command ends."""
        self.halted: MusterError | None = None

    @property
    def here(self) -> Project | None:
        """None: it is a server that is asked, whose files are elsewhere."""
        return self.project

    @property
    def project(self) -> Project:
        """Raises BadInput where a server is asked."""
        raise NotImplementedError

    def settings(self) -> Config:
        """Of the project; of a server's nothing is known.  Raises BadConfig."""
        from muster.app.settings import load_config
        from muster.config.settings import Config

        return Config() if self.here is None else load_config(self.here.root)

    @property
    def reach(self) -> dict[str, str]:
        """Where the processes of a task find it, as variables."""
        raise NotImplementedError

    def another(self) -> Connection:
        """A connection of its own, for a thread."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def post(self, path: str, **body: Any) -> Any:
        """What this user does."""
        return self.api.post(path, {"actor": actor(), **body})

    def tell_if_stale(self, tasks: Iterable[Mapping[str, Any]]) -> None:
        """A remark where a worker holds one of these tasks while nobody is up who would notice its death."""
        if self.direct and any(str(task["worker"] or "").startswith("worker-") for task in tasks):
            note(f"no owner is up; {LAST_HEARD}")

    def workers(self, told: list[Json]) -> list[Json]:
        """With "dead" for those whose process has ended while nobody was up who would notice."""
        if self.direct and told:
            from muster.app.ending import left_running

            left = {process.pid for _, process in left_running(self.project)}
            for worker in told:
                worker["status"] = worker["status"] if worker["pid"] in left else "dead"
        return told

    def task_id(self, reference: str) -> tuple[int, int | None]:
        """(task id, epoch or None).  Raises NotFound, Ambiguous."""
        found = self.api.get("/api/v1/resolve", {"ref": reference})
        return found["taskId"], found["epoch"]


class LocalContext(Context):
    """A project here, and its owner."""

    def __init__(
        self, project: Project, stack: ExitStack, transport: Transport, owner: DirectTransport | None
    ) -> None:
        super().__init__(stack, transport, attempt_headers(project))
        self._project = project
        self.direct = owner is not None
        self.halted = owner.halted if owner is not None else None

    @property
    def here(self) -> Project | None:
        return None if self._project.shares_store else self._project

    @property
    def project(self) -> Project:
        return self._project

    @property
    def reach(self) -> dict[str, str]:
        return {"MUSTER_SOCKET": str(self._project.socket)}

    def another(self) -> Connection:
        return Connection(self._project.socket)


class FarContext(Context):
    """A server elsewhere."""

    def __init__(self, server: KnownServer, args: argparse.Namespace) -> None:
        """Raises BadInput for what is no address."""
        ServerPlaces(server.url)
        self._server, self._args = server, args
        stack = ExitStack()
        connection = stack.enter_context(closing(self.another()))
        headers = {"Muster-Attempt": server.attempt} if server.attempt else {}
        super().__init__(stack, connection, headers)

    @property
    def here(self) -> None:
        return None

    @property
    def project(self) -> Project:
        raise _for_folders(self._args, self._server)

    @property
    def reach(self) -> dict[str, str]:
        return {"MUSTER_SERVER": self._server.url}

    def another(self) -> Connection:
        return Connection(self._server.url, self._server.token, self._server.ca, slow=note)


def server_of(args: argparse.Namespace) -> KnownServer | None:
    """The server that is meant; None: a folder here is.  Raises as `server_in`, and BadInput for two at once.

    Who is in no project's folder means the one in use.
    """
    if args.server and args.context:
        raise BadInput("--server and --context both say which server; nothing was asked", "use one of them")
    found = server_in(os.environ, url=args.server, context=args.context, here=args.root is not None)
    if found is not None or args.root is not None:
        return found
    current = current_server(os.environ)
    return None if current is None or find_project(start_folder(None), os.environ) else current


def refuse_server(args: argparse.Namespace) -> None:
    """Raises BadInput where a server elsewhere is meant."""
    if (server := server_of(args)) is not None:
        raise _for_folders(args, server)


def _for_folders(args: argparse.Namespace, server: KnownServer) -> BadInput:
    words = ("muster", args.noun, *filter(None, [getattr(args, "verb", None)]))
    asked = " ".join(words)
    return BadInput(
        f"{asked} works in a project's folder, and {server.named} means {server.url}; nothing was changed",
        f"on that machine: {asked}; for a folder here: -C DIR",
    )


def attempt_headers(project: Project) -> dict[str, str]:
    """Inside a task of this project: what is asked for is its attempt's word, not the person's.

    Who has taken a task by hand is a person.
    """
    env = os.environ
    names = ("MUSTER_TOKEN", "MUSTER_TASK_ID", "MUSTER_EPOCH")
    inside = env.get("MUSTER_SOCKET") == str(project.socket) and not env.get("MUSTER_BY_HAND")
    if not inside or not all(env.get(name) for name in names):
        return {}
    token, task_id, epoch = (env[name] for name in names)
    return {"Authorization": f"Bearer {token}", "Muster-Attempt": f"{task_id}/{epoch}"}


def refuse_attempts(api: Api, what: str) -> None:
    """Raises Forbidden inside of a task: no agent decides what is merged, or what leaves this machine."""
    api.post(path_of("person", what), {})


def actor() -> str:
    return f"user:{user_name(os.getuid())}"


def start_folder(root: str | None) -> str:
    """Where the search for a project begins.  Raises BadInput where `-C` names no folder."""
    if root is None:
        try:
            return os.getcwd()
        except FileNotFoundError:
            raise NotFound("the current folder is gone", "cd into a folder that exists") from None
    if not os.path.isdir(root):
        raise BadInput(f"-C {root}: there is no such folder", "name the project's folder")
    return os.path.realpath(root)


def no_rows(args: argparse.Namespace, what: str = "tasks") -> str:
    """For an empty list: where commits are missing it is no beginning."""
    return f"0 {what}" if args.rewound is not None else f"0 {what}: muster run PLAN.md"


def project_of(args: argparse.Namespace) -> Project:
    """Raises NotFound outside of a project, BadInput where a server elsewhere is meant."""
    refuse_server(args)
    start = start_folder(args.root)
    # An explicit folder is meant, whatever the environment says.
    env = {} if args.root is not None else os.environ
    project = find_project(start, env)
    if project is None:
        raise NotFound(
            f"there is no project in {start} or above it",
            "muster init, or -C DIR for another folder",
        )
    refuse_foreign(project)
    return project


def refuse_foreign(project: Project) -> None:
    """Raises NotAllowed where `.muster/` belongs to another user; root may look into everybody's."""
    try:
        owner = os.stat(os.path.dirname(project.socket)).st_uid
    except OSError:
        return  # not there yet, or somebody finds better words for it
    if os.geteuid() in (owner, 0):
        return
    name = user_name(owner)
    raise NotAllowed(
        f"{project.state_dir} belongs to {name}; nothing was read or changed",
        f"sudo -u {name} muster ..., or work in a folder of your own: muster init -C DIR",
    )


def user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def connect(args: argparse.Namespace) -> Context:
    """Tells first what is missing in the store; the command ends with that code then, whatever it can still show.

    Raises OwnerUnavailable where somebody holds the store but does not answer.
    """
    if (server := server_of(args)) is None:
        return connect_to(project_of(args), args)
    if args.root is not None:
        raise BadInput(f"-C and {server.named} both say who is asked; nothing was asked", "use one of them")
    return FarContext(server, args)


def connect_to(project: Project, args: argparse.Namespace | None = None) -> LocalContext:
    """As `connect`, where the project is known; without `args` whoever asks looks for what is missing."""
    with ExitStack() as stack:
        reached = _reach(project, stack)
        owner = None if isinstance(reached, Connection) else reached
        transport = _Asking(project, reached) if isinstance(reached, Connection) else reached
        context = LocalContext(project, stack.pop_all(), transport, owner)
        if args is not None and args.rewound is None and isinstance(context.halted, StoreRewound):
            args.rewound = context.halted
            print_error(context.halted, as_json=args.json)
        if args is not None and isinstance(context.halted, StoreMoved):
            note(context.halted.message)
        if args is not None and owner is not None and owner.former:
            note(owner.former)
        if args is not None and (full := full_disk(os.path.dirname(project.socket))):
            note(f"{full}; until then nothing is written")
        return context


def _reach(
    project: Project, stack: ExitStack, waiting: LockWait | None = None
) -> Connection | DirectTransport:
    """The owner, or this very process in its place.

    Raises OwnerUnavailable where another process holds the store for too long.
    """
    while True:
        try:
            connection = Connection(project.socket)
            if connection.open():
                stack.callback(connection.close)
                return connection
            if _holder(project) is None:
                return stack.enter_context(_direct(project))
        except OwnerUnavailable:
            pass  # another one was quicker: look again
        except PermissionError as error:
            raise denied(error) from error
        waiting = waiting or _waiting(project)
        if waiting.over():
            raise _held(project)
        time.sleep(_POLL_S)


def _direct(project: Project) -> AbstractContextManager[DirectTransport]:
    gc.disable()  # to look for garbage among what is imported costs 15 ms, now and later
    try:
        from muster.app.direct import direct
    finally:
        gc.freeze()
        gc.enable()
    return direct(project, note)


class _Asking:
    """A connection whose owner may end before it has answered: what only asks is put to whoever comes next.

    So is an order that nobody has taken; one that may have been carried out is not.  Nor is what waits for news:
    an owner in this process would keep the next crew out for as long.
    """

    def __init__(self, project: Project, connection: Connection) -> None:
        self._project = project
        self._connection = connection

    def request(self, asked: ClientRequest) -> tuple[int, bytes]:
        owner: Connection | DirectTransport = self._connection
        waiting: LockWait | None = None
        with ExitStack() as stack:
            while True:
                try:
                    return owner.request(asked)
                except OwnerUnavailable as error:
                    taken = asked.method != "GET" and isinstance(owner, Connection) and owner.sent
                    if taken or asked.reply_s > REPLY_S or isinstance(error.__cause__, TimeoutError):
                        raise
                    waiting = waiting or _waiting(self._project)
                    if waiting.over():
                        raise
                stack.close()
                owner = _reach(self._project, stack, waiting)

    def close(self) -> None:
        self._connection.close()


def _waiting(project: Project) -> LockWait:
    from muster.hosts.file_lock import LockWait

    return LockWait(project.owner_lock)


def _holder(project: Project) -> int | None:
    from muster.hosts.file_lock import holder

    return holder(project.owner_lock)


def denied(error: PermissionError) -> NotAllowed:
    """Which file keeps us out, and the command that lets us in."""
    path = error.filename or ""
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return NotAllowed(f"{path or 'another user has started it'}: {error.strerror}", "sudo muster ...")
    if owner == os.geteuid():
        return NotAllowed(f"{path}: permission denied", f"chmod u+rwX {shell_word(path)}")
    above, found, _ = path.partition(f"/{STATE_DIR_NAME}/")
    place = shell_word(above + found.rstrip("/") if found else path)
    return NotAllowed(
        f"{path} belongs to {user_name(owner)}: permission denied",
        f"sudo chown -R {user_name(os.geteuid())} {place}",
    )


def _held(project: Project) -> MusterError:
    pid = _holder(project)
    with suppress(OSError):
        starter = os.stat(project.socket).st_uid
        if os.geteuid() not in (starter, 0):
            name, folder = user_name(starter), shell_word(project.folder)
            return NotAllowed(
                f"{name} has started the crew of {project.folder}", f"sudo -u {name} muster -C {folder} down"
            )
    who = f"process {pid}" if pid is not None and pid > 0 else "another process"
    end_it = f"; if it hangs: kill {pid}, then muster up" if pid is not None and pid > 0 else ""
    return OwnerUnavailable(
        f"{who} holds the store, but nobody answers at {project.socket}", f"try again in a moment{end_it}"
    )


def patiently(call: Callable[[], T], away_s: float = AWAY_S, *, quiet: bool = False) -> T:
    return repeated(call, away_s, None if quiet else note)


def after_change(context: Context, task_id: int, done: str) -> Json:
    """The task, to which something was `done`: what keeps it from being read does not undo that, and says so."""
    try:
        task: Json = patiently(lambda: context.api.get(task_path(task_id)), AWAY_S)["task"]
    except Unavailable as error:
        cause = error.message.removesuffix("; nothing was written")
        raise Unavailable(
            f"task {task_id} was {done}, and cannot be read now: {cause}", f"muster task show {task_id}"
        ) from error
    return task
