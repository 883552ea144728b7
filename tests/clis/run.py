"""`./run test-agents`: installs the agent CLIs and runs the contract tests on them, cut off from the network.

`./run agents [--rounds N] [--cases NAME,...]` measures there how they fare with Muster.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from install import PINS, PYTHON_PINS, NotInstalled, install

HERE = Path(__file__).parent
NOWHERE = "http://127.0.0.1:9"
CLOSED = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"), NOWHERE),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
}
LOOPBACK_ONLY = 'ip link set lo up && exec "$@"'


def main(arguments: list[str]) -> int:
    env = {**os.environ, **CLOSED, "PYTHONPATH": str(HERE.parent)}
    measure = [sys.executable, str(HERE / "measure.py"), *arguments[1:]]
    if arguments[:1] == ["--measure"] and {"-h", "--help"}.intersection(arguments):
        return subprocess.run(measure, env=env, check=False).returncode  # nothing is installed for it
    try:
        for kind in (*PINS, *PYTHON_PINS):
            print(f"{kind}: {install(kind)}", flush=True)
    except NotInstalled as error:
        print(f"not run: the contract tests on real agent CLIs: {error}", file=sys.stderr)
        return 1
    cut = ["unshare", "-rn", "sh", "-c", LOOPBACK_ONLY, "sh"]
    if (
        not all(map(shutil.which, ("unshare", "ip")))
        or subprocess.run([*cut, "true"], check=False).returncode
    ):
        print(
            "no network namespaces here: only a proxy that is none keeps the CLIs from the network",
            flush=True,
        )
        cut = []
    files = [str(path) for path in sorted(HERE.glob("real_*.py"))]
    pytest = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(arguments or ["-q", "-s"]), *files]
    command = [*cut, *(measure if arguments[:1] == ["--measure"] else pytest)]
    os.chdir(HERE.parents[1])
    # Whoever ends this by a signal means what runs, not its parent.
    return os.execvpe(command[0], command, env)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
