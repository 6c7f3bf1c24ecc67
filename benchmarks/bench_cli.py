"""How long the command line lets its user wait, as medians, beside an empty Python.

`bakeoff --help` within 0.5 s, `bakeoff recommend` on the reference runs within 3 s. The ratio to
`python -c pass` carries over to faster and slower machines; the seconds do not.

    python benchmarks/bench_cli.py --runs 9
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

_BAKEOFF = str(Path(sys.executable).with_name("bakeoff"))
_REFERENCE = Path(__file__).parents[1] / "results" / "reference"
_ANSWERED = {0, 7}  # an answer, or the answer that there is not enough evidence


def waits_s(argv: list[str], *, runs: int) -> list[float]:
    """Wall time of each of `runs` runs, after one that is not counted (it fills the file cache).

    RuntimeError with its output if a run fails.
    """
    times_s = []
    for _ in range(runs + 1):
        begin_s = time.perf_counter()
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        times_s.append(time.perf_counter() - begin_s)
        if done.returncode not in _ANSWERED:
            output = done.stdout + done.stderr
            raise RuntimeError(f"code {done.returncode}: {' '.join(argv)}\n{output}")
    return times_s[1:]


def main() -> int:
    """Print one row a command; 1 if a median is above its limit."""
    parser = argparse.ArgumentParser(description="How long the command line takes.")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--results", type=Path, default=_REFERENCE, help="runs to recommend from")
    args = parser.parse_args()
    commands: list[tuple[str, list[str], float | None]] = [
        ("python -c pass", [sys.executable, "-c", "pass"], None),
        ("bakeoff --help", [_BAKEOFF, "--help"], 0.5),
        ("bakeoff recommend", [_BAKEOFF, "recommend", str(args.results)], 3.0),
    ]
    print("command              median s   worst s   limit s   x python")
    empty_s = slow = 0.0
    for name, argv, limit_s in commands:
        times_s = waits_s(argv, runs=args.runs)
        middle_s = median(times_s)
        empty_s = empty_s or middle_s
        slow += limit_s is not None and middle_s > limit_s
        limit = "-" if limit_s is None else f"{limit_s:.1f}"
        print(
            f"{name:19s}  {middle_s:9.3f} {max(times_s):9.3f} {limit:>9s}"
            f"  {middle_s / empty_s:9.1f}"
        )
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
