"""The `pcdc` program: ready for Ctrl-C before anything else is imported."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Run the command line; Ctrl-C while it is being imported ends the process without a traceback."""
    # A process that was started to ignore interrupts goes on ignoring them.
    guarded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if guarded:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from .cli import main as run

    if guarded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
