"""The demo's agent: a script where a real crew has Claude Code or Codex.

It gets a task as any command does, builds its part of the package piece by piece in the shared repository
(writes it, runs its tests, commits it), notes each piece in the ledger of side effects, saves a checkpoint
after it, and resumes from `$MUSTER_CHECKPOINT` where there is one.  It needs the standard library only.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

RECIPES = Path(__file__).parent / "recipes"
NOTES = Path(".demo")
LEDGER = NOTES / "ledger.jsonl"
PACE_S = 0.5
"""A piece takes at least this long, or there would be nothing to see, or to kill."""
FUZZ_ROUNDS = 42
"""Times PACE_S is longer than a lease: a stopped worker's agent cannot end before it is given up."""
FUZZ_LEAST_S = 0.1
REPORT_EVERY = 3
ATTEMPT_OVER = 6
"""Exit code of `muster report` once another attempt may hold the task."""
_REPORT_VARIABLES = ("MUSTER_SOCKET", "MUSTER_TOKEN", "MUSTER_TASK_ID", "MUSTER_EPOCH")


class Piece(NamedTuple):
    title: str
    do: Callable[[dict[str, Any]], None]
    """Gets the state that is saved with the next checkpoint.  Doing it twice is the same as once."""


def main() -> int:
    key = os.environ["MUSTER_TASK"].partition("/")[2]
    pieces = pieces_of(key)
    _keep_token()
    state = _saved_state()
    if state["done"]:
        print(f"resuming {key}: {state['done']} of {len(pieces)} pieces are done", flush=True)
    for number, piece in list(enumerate(pieces, 1))[state["done"] :]:
        begun_s = time.monotonic()
        print(f"{number}/{len(pieces)} {piece.title}", flush=True)
        piece.do(state)
        _note(key, number, len(pieces))
        state["done"] = number
        _report("checkpoint", "--text", json.dumps(state))
        if number % REPORT_EVERY == 0:
            _report("progress", str(100 * number // len(pieces)), "--step", piece.title)
        time.sleep(max(0.0, begun_s + PACE_S - time.monotonic()))
    return 0


def pieces_of(key: str) -> list[Piece]:
    special = {
        "skeleton": _skeleton,
        "fuzz": _fuzz,
        "cli": _cli,
        "docs": _docs,
        "verify": _verify,
        "release": _release,
    }
    return special[key]() if key in special else _module(key)


def _saved_state() -> dict[str, Any]:
    path = os.environ.get("MUSTER_CHECKPOINT")
    state: dict[str, Any] = json.loads(Path(path).read_bytes()) if path else {"done": 0}
    return state


def _keep_token() -> None:
    """So that the demo can try, once this attempt is over, whether it is really locked out."""
    env = {name: os.environ[name] for name in _REPORT_VARIABLES}
    path = NOTES / f"{env['MUSTER_TASK_ID']}-{env['MUSTER_EPOCH']}.json"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(env, file)


def _note(key: str, number: int, of: int) -> None:
    """One line in the ledger: this piece was really done, by this process, at this time."""
    line = {
        "task": int(os.environ["MUSTER_TASK_ID"]),
        "key": key,
        "epoch": int(os.environ["MUSTER_EPOCH"]),
        "piece": number,
        "of": of,
        "pid": os.getpid(),
        "atMs": time.time_ns() // 1_000_000,
    }
    fd = os.open(LEDGER, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(fd, (json.dumps(line) + "\n").encode())
    finally:
        os.close(fd)


def _report(*arguments: str) -> None:
    """`muster report`, of the same installation."""
    done = subprocess.run([sys.executable, "-m", "muster.cli.main", "report", *arguments], check=False)
    if done.returncode == ATTEMPT_OVER:
        sys.exit(ATTEMPT_OVER)
    done.check_returncode()


def _run(*argv: str) -> str:
    """What the command printed.  Raises RuntimeError with its last words where it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done.stdout


def _python(*arguments: str) -> str:
    return _run(sys.executable, *arguments)


def _write(name: str, text: str) -> None:
    """As a whole: a neighbour that reads it meanwhile sees the old file or the new one."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, "utf-8")
    draft.replace(path)


@contextmanager
def _git_alone() -> Iterator[int]:
    """The agents share one repository.  The kernel frees this lock when its holder is killed."""
    fd = os.open(NOTES / "git.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        # Whoever left these was killed in the middle: everybody who lives waits here.
        for pattern in ("*.lock", "refs/heads/*.lock", "refs/tags/*.lock"):
            for left in Path(".git").glob(pattern):
                left.unlink(missing_ok=True)
        yield fd
    finally:
        os.close(fd)


def _commit(message: str, *names: str) -> None:
    with _git_alone() as fd:
        # git inherits the lock: it is held until the last process that could write has ended.
        def git(*arguments: str) -> int:
            done = subprocess.run(
                ["git", *arguments], pass_fds=(fd,), capture_output=True, text=True, check=False
            )
            if done.returncode > 1:
                raise RuntimeError(f"git {arguments[0]}: {done.stderr.strip()}")
            return done.returncode

        git("add", "--", *names)
        # Nothing differs where this piece was done before by an attempt that could not say so any more.
        changed = git("diff", "--cached", "--quiet", "--", *names)
        if changed and git("commit", "--quiet", "--message", message, "--", *names):
            raise RuntimeError(f"git could not commit {' '.join(names)}")


def _sections(name: str) -> tuple[str, list[tuple[str, str]]]:
    """(head, [(title, body)]) of a recipe."""
    head, *parts = f"\n{(RECIPES / f'{name}.txt').read_text('utf-8')}".split("\n=== ")
    return head.strip(), [(title, body.strip()) for title, _, body in (p.partition("\n") for p in parts)]


def _skeleton() -> list[Piece]:
    def make(name: str, text: str) -> Callable[[dict[str, Any]], None]:
        def do(_: dict[str, Any]) -> None:
            _write(name, f"{text}\n")
            _commit(f"skeleton: {name}", name)

        return do

    return [Piece(f"write {name}", make(name, text)) for name, text in _sections("skeleton")[1]]


def _module(key: str) -> list[Piece]:
    """One function and its test in each piece; all tests of the module must pass before it is committed."""
    head, parts = _sections(key)
    functions, tests = [], []
    for title, body in parts:
        function, _, test = body.partition("\n--- test\n")
        functions.append(function.strip())
        indented = "\n".join(f"        {line}" for line in test.strip().splitlines())
        tests.append(f"    def test_{title.replace(' ', '_')}(self) -> None:\n{indented}")
    code_file, test_file = f"tally/{key}.py", f"tests/test_{key}.py"
    test_head = f"import unittest\n\nfrom tally import {key}\n\n\nclass {key.title()}(unittest.TestCase):"

    def make(count: int) -> Callable[[dict[str, Any]], None]:
        def do(_: dict[str, Any]) -> None:
            _write(code_file, "\n\n\n".join([head, *functions[:count]]) + "\n")
            _write(test_file, test_head + "\n" + "\n\n".join(tests[:count]) + "\n")
            _python("-m", "unittest", "--quiet", f"tests.test_{key}")
            _commit(f"{key}: {parts[count - 1][0]}", code_file, test_file)

        return do

    return [Piece(title, make(count)) for count, (title, _) in enumerate(parts, 1)]


def _cli() -> list[Piece]:
    def make_runnable(_: dict[str, Any]) -> None:
        _write(
            "tally/__main__.py", "import sys\n\nfrom tally.cli import main\n\nsys.exit(main(sys.argv[1:]))\n"
        )
        _python("-m", "tally", "README.md")
        _commit("cli: python -m tally", "tally/__main__.py")

    return [*_module("cli"), Piece("make it runnable", make_runnable)]


def _fuzz() -> list[Piece]:
    def prepare(_: dict[str, Any]) -> None:
        _write("tests/fuzz_words.py", (RECIPES / "fuzz.txt").read_text("utf-8"))
        _commit("fuzz: random texts for the word splitter", "tests/fuzz_words.py")

    def make(seed: int) -> Callable[[dict[str, Any]], None]:
        def do(state: dict[str, Any]) -> None:
            # What starting the interpreter and saving the checkpoint cost in the last round is not for cases.
            begun_s = time.monotonic()
            spare_s = max(FUZZ_LEAST_S, PACE_S - float(overhead_s[0]))
            state["cases"] = state.get("cases", 0) + int(
                _python("-m", "tests.fuzz_words", str(seed), f"{spare_s:.2f}")
            )
            overhead_s[0] = time.monotonic() - begun_s - spare_s + 0.1

        return do

    def sum_up(state: dict[str, Any]) -> None:
        _write(
            "docs/fuzz.md",
            f"# Fuzzing\n\n{FUZZ_ROUNDS} seeds, {state['cases']:,} pairs of texts, no law broken.\n",
        )
        _commit("fuzz: what was tried", "docs/fuzz.md")

    overhead_s = [0.2]
    rounds = [Piece(f"random texts with seed {seed}", make(seed)) for seed in range(1, FUZZ_ROUNDS + 1)]
    return [Piece("write the fuzzer", prepare), *rounds, Piece("sum up", sum_up)]


def _docs() -> list[Piece]:
    def make(module: str) -> Callable[[dict[str, Any]], None]:
        def do(_: dict[str, Any]) -> None:
            tree = ast.parse(Path(f"tally/{module}.py").read_text("utf-8"))
            lines = [f"# tally.{module}", "", ast.get_docstring(tree) or "", ""]
            for node in tree.body:
                if isinstance(node, ast.FunctionDef):
                    returns = ast.unparse(node.returns) if node.returns else "None"
                    lines += [
                        f"- `{node.name}({ast.unparse(node.args)}) -> {returns}`: {ast.get_docstring(node)}"
                    ]
            _write(f"docs/{module}.md", "\n".join(lines) + "\n")
            _commit(f"docs: {module}", f"docs/{module}.md")

        return do

    modules = ("words", "chars", "lines", "sentences", "frequency", "readability", "report")
    return [Piece(f"a page about {module}", make(module)) for module in modules]


def _sources() -> list[Path]:
    return sorted([*Path("tally").glob("*.py"), *Path("tests").glob("test_*.py")])


def _verify() -> list[Piece]:
    def test_all(_: dict[str, Any]) -> None:
        _python("-m", "unittest", "discover", "--quiet", "-s", "tests", "-t", ".")

    def compile_all(_: dict[str, Any]) -> None:
        _python("-m", "compileall", "-q", "-f", "tally")

    def measure(_: dict[str, Any]) -> None:
        rows = [f"{len(path.read_text('utf-8').splitlines()):5}  {path}" for path in _sources()]
        _write("docs/SIZES", "\n".join(rows) + "\n")
        _commit("verify: lines of each module", "docs/SIZES")

    def checksum(_: dict[str, Any]) -> None:
        rows = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path}" for path in _sources()]
        _write("docs/SHA256SUMS", "\n".join(rows) + "\n")
        _commit("verify: a checksum of each file", "docs/SHA256SUMS")

    return [
        Piece("run all tests", test_all),
        Piece("compile everything", compile_all),
        Piece("count the lines", measure),
        Piece("compute the checksums", checksum),
    ]


def _release() -> list[Piece]:
    def set_version(_: dict[str, Any]) -> None:
        path = Path("tally/__init__.py")
        _write(str(path), path.read_text("utf-8").replace('"0.0.0"', '"1.0.0"'))
        _python("-c", "import tally; assert tally.__version__ == '1.0.0'")
        _commit("release: version 1.0.0", str(path))

    def changelog(_: dict[str, Any]) -> None:
        log = _run("git", "log", "--reverse", "--format=- %s")
        _write("CHANGELOG.md", f"# 1.0.0\n\n{log}")
        _commit("release: changelog", "CHANGELOG.md")

    def tag(_: dict[str, Any]) -> None:
        with _git_alone():
            _run("git", "tag", "--force", "v1.0.0")

    return [
        Piece("set the version", set_version),
        Piece("write the changelog", changelog),
        Piece("tag it", tag),
    ]


if __name__ == "__main__":
    sys.exit(main())
