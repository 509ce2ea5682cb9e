"""What Spark forks the Python processes of its tasks from: PySpark's own daemon, but for its last words.

A minute after the last task Spark hangs up on these processes, and each prints a traceback about that to the terminal
of whoever works there.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_worker = daemon.worker
_HUNG_UP = 1


def worker(sock: socket.socket, authenticated: bool) -> int:
    """What a process does after the fork, until Spark has no more for it."""
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        return _HUNG_UP


if __name__ == "__main__":
    daemon.worker = worker
    daemon.manager()
