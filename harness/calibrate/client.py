"""The client's side of one load, in a process of its own: `bakeoff run` up to the store.

The overrides are the arguments. No verdict is drawn from such a run, so nothing is analysed.
"""

import sys

from harness.errors import BakeoffError
from harness.sweep.hydra_app import run_hydra
from harness.sweep.run_task import RunTask


def main() -> int:
    """Measure and store; returns the exit code of `bakeoff run`, the reason on standard error."""
    task = RunTask(lambda _progress: None)
    try:
        code = run_hydra("bakeoff run", sys.argv[1:], task)
    except BakeoffError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    for result in task.results:
        if result.exit_code:
            sys.stderr.write(f"{result.message}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
