"""Rotates the keys of a project again and again, killed one step later each time: `killed_rotation.py FOLDER`.

Prints the step before which it was killed, and `done` for the one that was not; all that is sealed is opened in
between.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from muster.app.key import open_store
from muster.cli.main import main
from muster.config.project import Project
from muster.engine.batch import drive
from muster.hosts import vault
from muster.model.input_secrets import input_purpose
from muster.model.secrets import secret_purpose
from muster.model.webhooks import sealed_for
from muster.stores.sqlite.store import SqliteStore


class Steps:
    def __init__(self, left: int) -> None:
        self.left = left

    def before(self, step: str, does: Callable[..., Any]) -> Callable[..., Any]:
        def take(*args: Any, **options: Any) -> Any:
            if self.left == 0:
                print(step, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
            return does(*args, **options)

        return take


def rotate(folder: str, steps: Steps) -> int:
    vault.replace_plain = steps.before("key", vault.replace_plain)
    SqliteStore.transact = steps.before("commit", SqliteStore.transact)  # type: ignore[method-assign]
    return main(["-C", folder, "secrets", "rotate"])


def check(folder: str) -> None:
    project = Project(folder)
    store, keys = open_store(project), vault.KeyVault(project.vault_key_file)
    for workspace in drive(store.reads.workspaces()):
        reads = store.reads.of(workspace.id)
        (secret,) = drive(reads.sealed_secrets()).values()
        keys.unseal(secret, secret_purpose(workspace.id, "TOKEN"))
        for task in drive(reads.sealed_inputs(0, 9)):
            assert "s3cret" in keys.unseal(task.sealed, input_purpose(workspace.id, task.task_id))
        (webhook,) = drive(reads.webhooks())
        keys.unseal(drive(reads.webhook_secret(webhook.id)) or "", sealed_for(workspace.id))
    store.close()


def run(folder: str) -> None:
    for number in range(20):
        child = os.fork()
        if child == 0:
            os._exit(rotate(folder, Steps(number)))
        _, status = os.waitpid(child, 0)
        check(folder)
        if not os.WIFSIGNALED(status):
            print("done" if status == 0 else f"failed: {status}")
            return


if __name__ == "__main__":
    run(str(Path(sys.argv[1])))
