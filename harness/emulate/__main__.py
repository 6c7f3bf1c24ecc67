"""`python -m harness.emulate ENGINE`: as `bakeoff emulate`."""

import sys

from harness.emulate.command import serve
from harness.errors import BakeoffError

if __name__ == "__main__":
    try:
        sys.exit(serve(sys.argv[1:], "python -m harness.emulate"))
    except BakeoffError as error:
        sys.stderr.write(f"bakeoff: {error}\n")
        sys.exit(error.exit_code)
