"""`muster`: finds the command, imports that one's module, and turns every end into an exit code.

Each command is a module with `add(parser)` and `run(args) -> int`; `args.json`, `args.root` and `args.color`
are always there.  Nothing else is imported before it is known to be needed: a command may cost 60 ms of CPU.
That is why modules on its way say `TYPE_CHECKING = False`, which type checkers read as true: `typing` costs 5.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import gc
import os
import sys
from functools import partial

from muster import __version__
from muster.cli.output import columns, drop_unwritten, one_row_per_line, print_error
from muster.cli.terminal import gated
from muster.hosts import ctrl_c
from muster.model.errors import BadInput, MusterError, StoreRewound
from muster.model.wording import near

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, NoReturn

COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("muster.cli.init", "make this folder a project: its settings, its agents, a first plan"),
    "run": ("muster.cli.run", "run a plan until it is done"),
    "up": ("muster.cli.up", "start the crew and keep it running (--daemon: in the background)"),
    "serve": ("muster.cli.serve", "start the crew, and answer HTTP for others than you"),
    "down": ("muster.cli.down", "let the crew finish its running tasks, then stop it"),
    "demo": ("muster.cli.demo", "watch a crew work while its workers are killed"),
    "status": ("muster.cli.status", "plans, workers, agents, and what needs a person"),
    "watch": ("muster.cli.watch", "follow tasks and events live"),
    "ui": ("muster.cli.ui", "look at the crew in a browser, answer its questions, steer its tasks"),
    "plan": ("muster.cli.plan", "add, list, show, compare, draw, export, pause, resume or cancel plans"),
    "pr": ("muster.cli.pr", "push a plan's or a task's branch as a pull request, and follow it"),
    "task": ("muster.cli.task", "add, list, show and steer tasks"),
    "claim": ("muster.cli.claim", "take a task by hand, renew it, give it back"),
    "worker": ("muster.cli.worker", "list, show, start and stop workers"),
    "orchestrator": (
        "muster.cli.orchestrator",
        "start, pause, resume, stop, check or reconcile the whole crew",
    ),
    "config": ("muster.cli.config", "show settings and their origin, import those of other orchestrators"),
    "attempt": ("muster.cli.attempt", "the runs of a task, and what each has changed"),
    "artifact": ("muster.cli.artifact", "what a task's attempts have made: list it, read it"),
    "worktree": ("muster.cli.worktree", "list or clear working trees of ended tasks"),
    "why": ("muster.cli.why", "why a task is in its state, with the evidence"),
    "agent": ("muster.cli.agent", "list, show and test the agents of this project"),
    "inbox": ("muster.cli.inbox", "what waits for a person: questions and failed tasks"),
    "budget": ("muster.cli.budget", "how much a plan or a task may cost, and on with what that had paused"),
    "answer": ("muster.cli.answer", "answer a task's question, which resumes it"),
    "tell": ("muster.cli.tell", "tell a task's agent something, also while it works"),
    "attach": ("muster.cli.attach", "open the session of a task's agent yourself"),
    "dead": ("muster.cli.dead", "failed tasks: list, retry or discard them"),
    "workspace": ("muster.cli.workspace", "the tenants of this store: make one, list them"),
    "member": ("muster.cli.member", "who may reach a workspace over the network, and as what"),
    "webhook": ("muster.cli.webhook", "who is told by HTTP what happens here"),
    "notify": ("muster.cli.notify", "where you are told what waits for you: list, test, messages"),
    "login": ("muster.cli.login", "keep a server's address and your token for it"),
    "logout": ("muster.cli.logout", "forget a server and the token for it"),
    "context": ("muster.cli.contexts", "the servers that you have logged in to, and which one is in use"),
    "secrets": ("muster.cli.secrets", "what agents are given in their environment, sealed and never shown"),
    "token": ("muster.cli.token", "make, list and revoke what proves to a server who asks"),
    "audit": ("muster.cli.audit", "list events, and prove that nobody has changed them"),
    "db": ("muster.cli.db", "back up, check, migrate or restore the store"),
    "logs": ("muster.cli.logs", "what an agent said and did, or printed"),
    "doctor": ("muster.cli.doctor", "check this machine and this project"),
    "report": ("muster.cli.report", "progress, checkpoints and results, from inside a task"),
    "api": ("muster.cli.api", "call the owner's HTTP API directly"),
    "completion": ("muster.cli.completion", "print a completion script for your shell"),
    "man": ("muster.cli.man", "the manual page"),
}
COLOURS = ("auto", "always", "never")
_UNWRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF)
GLOBALS: tuple[tuple[tuple[str, ...], str, str, tuple[str, ...]], ...] = (
    (("--json",), "", 'a machine\'s answer; errors go to stderr as {"error": {code, message, hint}}', ()),
    (("--jsonl",), "", "the same, with one line per row of a list", ()),
    (("-C", "--root"), "DIR", "the project's folder, instead of the current one and its parents", ()),
    (
        ("--server",),
        "URL",
        "a server elsewhere, not a folder here (MUSTER_SERVER); again: another of its store",
        (),
    ),
    (("--context",), "NAME", "a server that `muster login` knows by this name (MUSTER_CONTEXT)", ()),
    (("--color",), "WHEN", "auto, always or never", COLOURS),
)
"""Options of all commands: names, metavar, help, choices."""
EXIT_CODES = {
    0: "ok",
    1: "error",
    2: "usage",
    3: "not found or ambiguous",
    4: "not allowed",
    5: "the work failed",
    6: "conflict",
    7: "nobody answers",
    8: "waited too long",
    (EXIT_INTERRUPTED := 130): "interrupted",
}
_GLOBAL_OPTIONS = (*(name for names, *_ in GLOBALS for name in names), "--version", "--help")
_ELSEWHERE = {
    "add": "plan add",
    "list": "task list",
    "ls": "task list",
    "ps": "status",
    "top": "watch",
    "log": "logs",
    "tail": "logs",
    "show": "task show",
    "start": "up",
    "stop": "down",
    "kill": "down",
    "restart": "up",
    "version": "--version",
}
"""What people try first, and what it is called here."""
_NOUNS = ("task", "plan", "agent", "worker", "attempt", "worktree", "dead", "db", "config", "claim", "audit")
"""Whose verbs are found without them, in this order: `muster retry` is probably `muster task retry`."""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Told the width: argparse would import shutil for it on every call, help or not, which costs 2 ms."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns() - 2)


class _Unasked:
    """Takes the description of a verb that was not asked for, and forgets it."""

    def __getattr__(self, name: str) -> Any:
        return self._forget

    def _forget(self, *_: object, **__: object) -> _Unasked:
        return self


class _Verbs(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Describes one verb where it is known which: all sixteen of `muster task` cost each call 8 ms."""

    def __init__(self, *args: Any, asked: str | None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._asked = asked

    def add_parser(self, name: str, *, act: Any = None, **options: Any) -> Any:
        """`act` is what the verb does; without one, `run` of the command's module does it."""
        if self._asked in (None, name):
            parser = super().add_parser(name, **options)
            parser.set_defaults(act=act)
            return parser
        self.choices[name] = _Unasked()
        return self.choices[name]


class Parser(argparse.ArgumentParser):
    """Raises BadInput where argparse would print its usage and end.  `asked` is the only verb to be described."""

    def __init__(self, *args: Any, asked: str | None = None, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", _Formatter)
        super().__init__(*args, **options)
        self.asked = asked

    def add_subparsers(self, **options: Any) -> Any:
        verbs: Any = partial(_Verbs, asked=self.asked)
        return super().add_subparsers(action=verbs, **options)

    def error(self, message: str) -> NoReturn:
        if "invalid choice: " in message:
            message = _invalid_choice(message, self)
        elif message.endswith("required: VERB"):
            message += f", one of {', '.join(_verbs(self))}"
        raise BadInput(message, f"{self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    with gated():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = not {"--json", "--jsonl"}.isdisjoint(arguments)
    try:
        _tolerate_any_text()
        code = _dispatch(arguments)
        _flush()
    except SystemExit as end:  # argparse, after --help
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except KeyboardInterrupt as interrupt:
        if not interrupt.args:  # Python's own, of SIGINT; ours say what else it was
            ctrl_c.note()
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = 0  # whoever read our answer has seen enough
    except MusterError as error:
        print_error(error, as_json=as_json)
        code = error.exit_code
    except PermissionError as error:
        from muster.cli.context import denied

        refused = denied(error)
        print_error(refused, as_json=as_json)
        code = refused.exit_code
    except OSError as error:
        if error.errno not in _UNWRITTEN or error.filename is not None:
            return _end(_bug(error, as_json))
        code = _unwritten(error)
    except Exception as error:
        code = _bug(error, as_json)
    return _end(code)


def _dispatch(arguments: list[str]) -> int:
    found, rest = _split_globals(arguments)
    one_row_per_line(found.jsonl)
    if found.version:
        print(f"muster {__version__}")
        return 0
    if rest[:1] == ["help"]:
        rest = [*rest[1:2], "--help"]
    if not rest or rest[0] in ("-h", "--help"):
        print(_help())
        return 0
    name, *rest = rest
    if name not in COMMANDS:
        _refuse_unknown(name)
    return _run(name, rest, found)


def _run(name: str, rest: list[str], found: argparse.Namespace) -> int:
    module_name, line = COMMANDS[name]
    # Imports make no garbage; to look for it while they run costs 3 ms.
    gc.disable()
    try:
        command = load(name, module_name)
    finally:
        gc.enable()
    rest = _spelled_out(name, rest)
    asked = rest[0] if rest and not rest[0].startswith("-") else None
    parser = _described(name, line, command, asked)
    args, extra = parser.parse_known_args(rest, found)
    if extra:
        culprit = next((text for text in extra if text.startswith("-")), extra[0])
        kind = "option" if culprit.startswith("-") else "argument"
        options = _options(_described(name, line, command, asked))
        meant = _near(culprit.partition("=")[0], [*options, *_GLOBAL_OPTIONS])
        asked = " ".join(filter(None, ["muster", name, getattr(args, "verb", None)]))
        # Of a secret it may be the value, which is told to nobody again.
        what = f"such {kind}" if name == "secrets" else f"{kind} {culprit!r}{meant}"
        raise BadInput(f"{asked} knows no {what}", f"{asked} --help")
    act = getattr(args, "act", None) or command.run
    args.noun, args.rewound = name, None
    try:
        code: int = act(args)
    except MusterError as error:
        if args.rewound is None:
            raise
        if not isinstance(error, StoreRewound):  # that was told already
            print_error(error, as_json=args.json)
        code = 0
    return args.rewound.exit_code if args.rewound is not None else code


def _described(name: str, line: str, command: Any, asked: str | None = None) -> Parser:
    parser = Parser(prog=f"muster {name}", description=line, epilog=_globals(), asked=asked)
    command.add(parser)
    return parser


def _spelled_out(name: str, words: list[str]) -> list[str]:
    """What argparse would take for something else.

    `--wait REF` means the task: argparse would take whatever stands behind `--wait` for its time.  Behind the
    `--` of `report checkpoint` stands a command, and no FILE.  `pr PLAN` opens.
    """
    if name == "pr" and words and words[0] not in ("open", "status", "retry", "-h", "--help"):
        words = ["open", *words]
    if name == "report" and words[:1] == ["checkpoint"] and "--" in words:
        at = words.index("--")
        return [*words[:at], "--run", *words[at + 1 :]]
    if "--wait" not in words:
        return words
    last = words.index("--") if "--" in words else len(words)
    behind = [*words[1:], ""]
    return [
        "--wait=inf" if word == "--wait" and at < last and not behind[at][:1].isdigit() else word
        for at, word in enumerate(words)
    ]


def load(name: str, module_name: str) -> Any:
    """A command's module.  Raises MusterError where this build has none."""
    from importlib import import_module

    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        raise MusterError(f"`muster {name}` is not part of this build", "pip install -U musterd") from None


def _split_globals(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The global options, wherever they stand before a `--`, and the other arguments."""
    found = argparse.Namespace(json=False, jsonl=False, root=None, color="auto", version=False)
    found.server = found.context = ""
    rest: list[str] = []
    left = iter(arguments)
    for text in left:
        name, equals, value = text.partition("=")
        if text == "--":
            rest += [text, *left]
        elif text in ("--json", "--jsonl"):
            found.json = True
            found.jsonl = found.jsonl or text == "--jsonl"
        elif text in ("--version", "-V"):
            found.version = True
        elif name in ("-C", "--root"):
            found.root = value if equals else _value(name, left, "the project's folder")
        elif name == "--server":
            url = value if equals else _value(name, left, "the URL of a server")
            found.server = f"{found.server},{url}" if found.server and url else url
        elif name == "--context":
            found.context = value if equals else _value(name, left, "the name of a context")
        elif name == "--color":
            found.color = value if equals else _value(name, left, "auto, always or never")
        else:
            rest.append(text)
    if found.color not in COLOURS:
        meant = _near(found.color, COLOURS)
        raise BadInput(f"--color {found.color!r} is none of auto, always, never{meant}", "--color auto")
    return found, rest


def _value(name: str, left: Iterable[str], what: str) -> str:
    for text in left:
        return text
    raise BadInput(f"{name} needs a value: {what}", "muster --help")


def _globals() -> str:
    rows = [
        (", ".join(names) + (f" {metavar}" if metavar else ""), text) for names, metavar, text, _ in GLOBALS
    ]
    return "\n".join(["everywhere:", *(f"  {names:<18}  {text}" for names, text in rows), ""])


def _exit_codes() -> str:
    texts = [f"{code} {meaning}" for code, meaning in EXIT_CODES.items()]
    head = "exit codes: "
    return f"{head}{', '.join(texts[:6])},\n{' ' * len(head)}{', '.join(texts[6:])}\n"


def _help() -> str:
    room = max(map(len, COMMANDS))
    lines = [f"  {name:<{room}}  {line}" for name, (_, line) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: muster COMMAND [ARGUMENTS]",
            "",
            "Runs a crew of AI agents on a plan, and never loses a task.",
            "",
            "commands:",
            *lines,
            "",
            _globals(),
            "A task is named plan/key, key, its number, an unambiguous prefix of these, @last or @failed;",
            "plan/key#2 is its second attempt.",
            "",
            _exit_codes(),
            "first steps: muster init, then muster run plan.md; `muster COMMAND --help` tells more",
        ]
    )


def _refuse_unknown(name: str) -> NoReturn:
    kind = "option" if name.startswith("-") else "command"
    meant = _ELSEWHERE.get(name) or _noun_of(name)
    close = f"; did you mean 'muster {meant}'?" if meant else _near(name, [*COMMANDS, *_GLOBAL_OPTIONS])
    asked = " ".join(word for word in ("muster", meant, "--help" if meant != "--version" else None) if word)
    raise BadInput(f"there is no {kind} {name!r}{close}", asked)


def _noun_of(name: str) -> str | None:
    """`task retry` for `retry`, `task list` for `tasks`; None where no command has such a verb."""
    if name.removesuffix("s") in _NOUNS:
        return f"{name.removesuffix('s')} list"
    for noun in _NOUNS:
        if name in _verbs(_described(noun, "", load(noun, COMMANDS[noun][0]))):
            return f"{noun} {name}"
    return None


def _near(text: str, known: Iterable[str]) -> str:
    known = list(known)
    # What begins like it is meant: the first letters of a long option look like any short one.
    longer = [name for name in known if len(text) > len("--") and name.startswith(text)]
    return f"; did you mean {longer[0]!r}?" if longer else near(text, known)


def _invalid_choice(message: str, parser: argparse.ArgumentParser) -> str:
    """Says it the same way in every version of Python, and shorter."""
    given = message.partition("invalid choice: ")[2].partition(" (")[0].strip("'\"")
    asked = message.partition("argument ")[2].partition(": ")[0]
    actions = [action for action in parser._actions if argparse._get_action_name(action) == asked]
    known = [str(choice) for action in actions for choice in action.choices or ()]
    return f"{given!r} is not one of {', '.join(known)}{_near(given, known)}"


def _verbs(parser: argparse.ArgumentParser) -> list[str]:
    below = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return [name for action in below for name in action.choices]


def _options(parser: argparse.ArgumentParser) -> list[str]:
    found = list(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                found += _options(below) if isinstance(below, argparse.ArgumentParser) else []
    return found


def _tolerate_any_text() -> None:
    """What the terminal's encoding cannot say becomes `?`; it is never a reason to fail.  Nor is a stream that
    was closed: its number must not go to the next file that is opened, such as the store."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nowhere, "r" if name == "stdin" else "w"))
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def _bug(error: Exception, as_json: bool) -> int:
    if os.environ.get("MUSTER_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
        return 1
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    print_error(MusterError(text, "set MUSTER_DEBUG=1 for the traceback"), as_json=as_json)
    return 1


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _end(code: int) -> int:
    """Writes out what is left.  What cannot be written is dropped: Python would try again when it ends."""
    try:
        _flush()
    except BrokenPipeError:
        pass
    except OSError as error:
        code = code or _unwritten(error)
    drop_unwritten()
    return code


def _unwritten(error: OSError) -> int:
    print_error(
        MusterError(
            f"the answer could not be written: {error.strerror}",
            "what was asked for may have been done: look before you repeat it",
        ),
        as_json=False,
    )
    return 1


def entry() -> NoReturn:
    """The process: ends at once where nothing is left to do, for Python's own tidying up takes time."""
    atexit.register(ctrl_c.die)  # the first one is called last
    code = main()
    if code != EXIT_INTERRUPTED:
        ctrl_c.forget()
    if "threading" in sys.modules:
        gc.freeze()  # else it looks through all that is left, for some 25 ms
        sys.exit(code)
    ctrl_c.die()
    os._exit(code)


if __name__ == "__main__":
    entry()
