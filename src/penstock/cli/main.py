"""The entry of the `penstock` command."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command that the arguments name.

    A broker starts without the library that the other commands are made with: loading it takes a third of the start.
    Nor does it look for garbage before it has started: loading modules makes hardly any.
    """
    if sys.argv[1:2] == ["broker"]:
        gc.disable()
        from penstock.cli import broker

        sys.exit(broker.main(sys.argv[2:]))
    from penstock.cli.app import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
