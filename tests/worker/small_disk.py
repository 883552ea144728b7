"""One attempt on a small disk of its own: `unshare -Urm python small_disk.py FOLDER MB SECONDS SCRIPT`.

Prints as JSON how it ended, and how it ended for the next one, which begins on the disk as it was left.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from contained import Rig

from muster.hosts.local_host import LocalHost, become_subreaper
from muster.model import commands as c
from muster.worker import runner


def told(end: c.Command) -> dict[str, str]:
    said = {"message": end.message, "kind": end.kind.value} if isinstance(end, c.Fail) else {}
    return {"end": type(end).__name__, **said}


def main() -> None:
    folder, size_mb, order_s, script = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4]
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", folder], check=True)
    become_subreaper()
    runner.STOP_GRACE_S = 0.2
    ends = [told(Rig(folder).run(script, order_s=order_s or None))]
    free = shutil.disk_usage(folder).free
    # More than a page, which may be all that is left.
    ends.append(told(Rig(folder, task_id=8).run("head -c 10000 /dev/zero | tr '\\0' n")))
    mark = f"MUSTER_ROOT={folder}"
    print(json.dumps({"ends": ends, "free": free, "left": len(LocalHost().marked([mark])[mark])}))


if __name__ == "__main__":
    main()
