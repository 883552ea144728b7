"""Programs that do not want to end, each in its own way.  `$T` is the token that all their processes carry."""

from __future__ import annotations

_PYTHON = "python3 -S -E -c '{code}' $T"

_DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("ready", flush=True)
        time.sleep(1000)
    os._exit(0)
os.wait()
time.sleep(1000)
"""
_DEAF = """
import signal, time
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(1000)
"""
_HYDRA = """
import signal, subprocess, sys, time
def grow(*_):
    subprocess.Popen(["sleep", sys.argv[1]], start_new_session=True)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, grow)
grow()
print("ready", flush=True)
while True:
    time.sleep(1000)
"""

FIGHTERS = {
    "deaf": _PYTHON.format(code=_DEAF),
    "daemon": _PYTHON.format(code=_DAEMON),
    "hydra": _PYTHON.format(code=_HYDRA),
    "session": "setsid sleep $T & echo ready; sleep $T",
    "nameless": "env -i setsid sleep $T & echo ready; exec env -i sleep $T",
    "holder": "(setsid sleep $T &) ; echo ready; exit 0",
    "stopped": "sleep $T & kill -STOP $!; setsid sleep $T & echo ready; kill -STOP $$",
    "forker": "echo ready; while :; do setsid sleep 0.01 $T & sleep 0.005; done",
}
