"""``python -m drbench.model.native``: compile the event loop, beside its source."""

import sys

from drbench.errors import EXIT_CODES, MissingError

from .loop import build

if __name__ == "__main__":
    try:
        print(build())
    except MissingError as error:
        print(f"{error}", file=sys.stderr)
        sys.exit(EXIT_CODES["unsupported"])
