"""Sends a real owner what its own description allows, and what it does not: no 5xx, no undocumented answer.

schemathesis makes the requests; it is installed into a venv of its own on first use.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "worker"))

from real_crew import crew

from muster.client.api import Api

PINNED = "schemathesis==4.32.5"
INSTALL_S = 240
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
LEFT_OUT = "(shutdown|db/backup|/stream|/worker/v1/claim)"
"""What ends the owner, writes where it is told, or is held open."""
SETTINGS = """\
[webhooks]
private = true
[channels.phone]
kind = "webhook"
url = "http://127.0.0.1:9/"
private = true
"""
"""For an address on this host, where nobody listens."""
ADA = {"actor": "ada"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run api", description=__doc__)
    parser.add_argument(
        "--examples", type=int, default=10, metavar="N", help="of each operation (default: 10)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="K", help="of the requests (default: 1)")
    parser.add_argument("--phases", default="examples,coverage,fuzzing", help="of schemathesis")
    args = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "p"
        root.mkdir()
        (root / "muster.toml").write_text(
            f'{SETTINGS}[serve]\nlisten = "127.0.0.1:{port}"\nlogin = false\nrate = 0\n'
        )
        with crew(root, "owner") as (api, _):
            settings = Path(folder) / "schemathesis.toml"
            settings.write_text(_parameters(filled(api)))
            argv = [
                *(str(_program()), "--config-file", str(settings)),
                *(
                    "run",
                    f"http://127.0.0.1:{port}/api/v1/openapi.json",
                    "--no-color",
                    "--continue-on-failure",
                ),
                *("--phases", args.phases, "--max-examples", str(args.examples), "--seed", str(args.seed)),
                *("--checks", CHECKS, "--exclude-path-regex", LEFT_OUT, "--request-timeout", "70"),
                *("--generation-database", "none", "--suppress-health-check", "all"),
            ]
            return subprocess.run(argv, check=False, cwd=folder).returncode


def filled(api: Api) -> dict[str, Any]:
    """Names of what is there."""
    number = api.post("/api/v1/agent-tasks", {"title": "x", "key": "x", **ADA})["id"]
    api.call("PUT", "/api/v1/agents/prog", {"staleThresholdS": 3600, **ADA})
    hook = api.post("/api/v1/webhooks", {"url": "http://127.0.0.1:9/", **ADA})["id"]
    worker = api.get("/api/v1/workers")[0]["id"]
    return {
        "taskId": number,
        "agent": "prog",
        "plan": "tasks",
        "webhookId": hook,
        "channel": "phone",
        "workerId": worker,
        "epoch": 1,
    }


def _parameters(values: dict[str, Any]) -> str:
    lines = (f"{json.dumps('path.' + name)} = {json.dumps(value)}" for name, value in values.items())
    return "\n".join(["[parameters]", *lines, ""])


def _program() -> Path:
    folder = Path(sys.prefix) / "schemathesis"
    mark = folder / "installed"
    if not mark.exists() or mark.read_text("utf-8") != PINNED:
        venv.create(folder, clear=True, with_pip=True, symlinks=os.name != "nt")
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", PINNED]
        subprocess.run(pip, check=True, timeout=INSTALL_S)
        mark.write_text(PINNED, "utf-8")
    return folder / "bin" / "schemathesis"


if __name__ == "__main__":
    sys.exit(main())
