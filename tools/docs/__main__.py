"""The command `./hf docs`: writes the generated pages and builds the site into site/.

`--check` only says whether a generated page is stale. `--serve` shows the site at a local address and
rebuilds it after every change.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tools import docs
from tools.docs import site

OPTIONS = ("--check", "--serve")


def main(arguments: Sequence[str]) -> int:
    unknown = [argument for argument in arguments if argument not in OPTIONS]
    if unknown:
        print(f"no option {unknown[0]!r}; there are: {', '.join(OPTIONS)}", file=sys.stderr)
        return 2
    failed = docs.main(arguments)
    if failed or "--check" in arguments:
        return failed
    return site.serve() if "--serve" in arguments else site.build()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
