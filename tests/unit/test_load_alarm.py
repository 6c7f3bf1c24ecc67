"""Sleeping until a moment; in a process of its own, since gevent must not enter this one."""

import subprocess
import sys

import msgspec

SCRIPT = """
import json, gevent
from time import monotonic
from harness.load.play.alarm import Alarm

alarm = Alarm()
start_s = monotonic()
due_s = {name: start_s + after_s for name, after_s in
         {"c": 0.06, "a": 0.02, "b": 0.02, "past": -1.0, "late": 30.0}.items()}
woken = []

def sleep(name):
    alarm.sleep_until(due_s[name])
    woken.append([name, monotonic() - due_s[name]])

sleepers = [gevent.spawn(sleep, name) for name in due_s]
gevent.joinall(sleepers, timeout=0.2)
before = len(woken)
alarm.release()
gevent.joinall(sleepers)
alarm.sleep_until(monotonic() + 30.0)  # released: nobody sleeps here any more
alarm.close()
alarm.close()
print(json.dumps({"woken": woken, "before": before, "took_s": monotonic() - start_s}))
"""


def test_sleepers_wake_in_order_at_their_moments_and_all_at_release() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    content = msgspec.json.decode(done.stdout)
    names = [name for name, _ in content["woken"]]
    assert names == ["past", "a", "b", "c", "late"]
    late_s = [late_s for _, late_s in content["woken"]]
    assert content["before"] == 4
    assert all(0 <= late < 0.05 for late in late_s[1:4])  # never early
    assert late_s[4] < -20.0  # released long before it was due
    assert content["took_s"] < 5.0
