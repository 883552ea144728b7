"""Records what the real CLIs print, for the tests of the parsers that need no CLI.

`.venv/bin/python tests/clis/record.py`, after `./run test-agents` has installed them.  Paths of the machine,
ports, times and ids of its own are made the same in every recording.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from pathlib import Path

from model_stub import ModelStub
from scenarios import SCENARIOS

from bench import MODES, Bench, Ran
from muster.ports.agent import RunningProcess

OUT = Path(__file__).parents[1] / "agents" / "streams"
SILENT = {
    "qwen-code": {"quota", "e429", "e529"},
    "opencode": {"quota", "e429", "e529", "cut"},
}
"""Refusals that a CLI tries again for minutes, without a word."""
PLAIN = ("plain", "tools", "e401", "billing", "quota", "e429", "e529", "e400", "e404", "cut", "unfinished")

LISTS = re.compile(
    r'"(tools|slash_commands|skills|plugins|agents|mcp_servers|memory_paths)":(\[[^\]]*\]|\{[^}]*\})'
)
"""What the CLI offers: long, and nothing to us."""


def scrubbed(data: bytes, root: Path) -> str:
    text = data.decode().replace(str(root), "/project").replace(str(root).replace("/", "-"), "-project")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8080", text)
    text = re.sub(r"/(?:var/)?tmp/[\w./-]+", "/tmp/x", text)
    text = LISTS.sub(r'"\1":[]', text)
    return re.sub(r'"uuid":"[0-9a-f-]+"', '"uuid":"0"', text)


def record(kind: str, name: str, scenario: str, stub: ModelStub, **options: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder).resolve(), kind, stub.url, str(options.pop("mode", MODES[kind])))
        bench.extra = dict(options.pop("extra", {}))  # type: ignore[call-overload]
        interfere = options.pop("number", None)

        def kill(process: RunningProcess) -> None:
            bench.until("begun")
            os.killpg(process.pid, int(interfere))  # type: ignore[call-overload]

        ran: Ran = bench.run(scenario, meanwhile=kill if interfere else None)
        target = OUT / f"{kind}.{name}.jsonl"
        target.write_text(scrubbed(ran.stdout, bench.root))
        print(target.name, ran.code, ran.outcome, flush=True)


def main() -> int:
    OUT.mkdir(exist_ok=True)
    with ModelStub(SCENARIOS) as stub:
        for kind in sys.argv[1:] or ("claude-code", "codex", "gemini", "qwen-code", "opencode"):
            for name in [name for name in PLAIN if name not in SILENT.get(kind, ())]:
                stub.refused.clear()
                record(kind, name, name, stub)
            for name, number in (("killed", signal.SIGKILL), ("interrupted", signal.SIGINT)):
                record(kind, name, "slow", stub, number=number)
        if "claude-code" in sys.argv or not sys.argv[1:]:
            record("claude-code", "budget", "loop", stub, extra={"max_budget_usd": 0.02})
            record("claude-code", "refused", "tools", stub, mode="dontAsk")
    return 0


if __name__ == "__main__":
    sys.exit(main())
