"""The chaos agent: works in pieces, notes each in a ledger, saves a checkpoint after it, resumes from one.

Arguments: folder of the ledger, pieces, seconds per piece.  A piece is one line when it is done, and another one
once its checkpoint was acknowledged.  An agent that was fenced works on: whoever forgets to kill it is found out.
Reports over the socket itself: starting `muster` for each report would be the slowest part of it.
"""

import json
import os
import sys
import time
from base64 import b64encode
from pathlib import Path

from muster.client.api import Api
from muster.client.http import Connection
from muster.model.errors import Conflict, Unavailable

REPLY_S = 5.0


def main() -> int:
    folder, pieces, piece_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    task, epoch = os.environ["MUSTER_TASK_ID"], int(os.environ["MUSTER_EPOCH"])
    api = Api(
        Connection(os.environ.get("MUSTER_SOCKET") or os.environ["MUSTER_SERVER"]),
        {"Authorization": f"Bearer {os.environ['MUSTER_TOKEN']}"},
        reply_s=REPLY_S,
    )
    saved = os.environ.get("MUSTER_CHECKPOINT")
    done = json.loads(Path(saved).read_bytes())["done"] if saved else 0

    def note(piece: int, **more: float | bool) -> None:
        line = {"task": int(task), "epoch": epoch, "piece": piece, "pid": os.getpid(), "at": time.time()}
        with (folder / "ledger.jsonl").open("a") as ledger:
            ledger.write(json.dumps(line | more) + "\n")

    for piece in range(done + 1, pieces + 1):
        began = time.time()
        time.sleep(piece_s)
        note(piece, began=began)
        body = {"data": b64encode(json.dumps({"done": piece}).encode()).decode()}
        while True:
            try:
                api.post(f"/attempt/v1/{task}/{epoch}/checkpoint", body)
                note(piece, saved=True)
                break
            except Unavailable:
                time.sleep(0.05)
            except Conflict:
                break  # as most agents would: only its death can keep it from working on
    return 0


if __name__ == "__main__":
    sys.exit(main())
