"""An agent that works in units, notes each in a ledger, and saves a checkpoint now and then.

Arguments: ledger, units, seconds per unit, units between checkpoints (0: none).  The ledger shows what was done
twice: that is what a fault has cost.
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


def main() -> int:
    ledger, units, unit_s, every = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    saved = os.environ.get("MUSTER_CHECKPOINT")
    done = json.loads(Path(saved).read_bytes())["done"] if saved else 0
    for unit in range(done + 1, units + 1):
        time.sleep(unit_s)
        line = {"unit": unit, "epoch": int(os.environ["MUSTER_EPOCH"]), "pid": os.getpid(), "at": time.time()}
        with ledger.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if every and unit % every == 0 and not save(unit):
            return 6
    return 0


def save(unit: int) -> bool:
    """False where the attempt is over."""
    token = {"Authorization": f"Bearer {os.environ['MUSTER_TOKEN']}"}
    api = Api(Connection(Path(os.environ["MUSTER_SOCKET"])), token)
    path = f"/attempt/v1/{os.environ['MUSTER_TASK_ID']}/{os.environ['MUSTER_EPOCH']}/checkpoint"
    while True:
        try:
            api.post(path, {"data": b64encode(json.dumps({"done": unit}).encode()).decode()})
        except Unavailable:
            time.sleep(0.05)
        except Conflict:
            return False
        else:
            return True


if __name__ == "__main__":
    sys.exit(main())
