"""A process that has loaded all that the source of a streaming query needs, and forks one in milliseconds.

Spark starts an interpreter for the source of every streaming query, which then loads libraries for longer than many a
query takes. So a session on this machine keeps a process on standby that has done that. What Spark starts is a mere
stand-in (`task_python`, `stand_in.py`): it hands its environment to the one on standby, which forks, and it lives as
long as the fork does. Neither outlives the other. The process on standby ends with the program that made the session,
which holds the other end of its input.
"""

from __future__ import annotations

import contextlib
import gc
import marshal
import os
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
_SERVE = "import sys; from penstock.spark.standby import serve; serve(sys.argv[1])"
_REQUEST_TIMEOUT_S = 10.0


@cache
def start(python: str) -> subprocess.Popen[bytes]:
    """Have a process on standby for the JVM that is about to be started. It need not be ready for that."""
    path = f"{tempfile.mkdtemp(prefix='penstock-standby-')}/socket"  # in a folder that is ours alone
    os.environ["PENSTOCK_STANDBY"] = path
    return subprocess.Popen([python, "-c", _SERVE, path], stdin=subprocess.PIPE)


def serve(path: str) -> None:
    """Fork for whoever asks, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program; this ends with it
    signal.signal(signal.SIGCHLD, _reap)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # where Spark sends the output of sources
    try:
        for module in (_RUNNER, "penstock.spark.source"):
            import_module(module)
        gc.freeze()  # what libraries have made stays for good, in every fork
        with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as selector:
            listener.bind(path)
            listener.listen(64)
            selector.register(listener, selectors.EVENT_READ)
            selector.register(sys.stdin, selectors.EVENT_READ)
            while all(key.fileobj is listener for key, _ in selector.select()):
                stand_in, _ = listener.accept()
                if os.fork() == 0:
                    selector.close()
                    listener.close()
                    _become_source(stand_in)
                stand_in.close()
    finally:
        shutil.rmtree(Path(path).parent, ignore_errors=True)


def _reap(*_: object) -> None:
    """Nobody asks how a fork ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become_source(stand_in: socket.socket) -> NoReturn:
    """Do what the stand-in was started for."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request = _received(stand_in)
        threading.Thread(target=_end_with, args=(stand_in,), daemon=True).start()
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        sys.path[0] = request["folder"]
        sys.modules.pop(_RUNNER)  # it is run as a program, not imported
        runpy.run_module(_RUNNER, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except (EOFError, ConnectionError):
        pass  # Spark has ended the query, or has ended itself
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status & 0xFF)


def _received(stand_in: socket.socket) -> Any:
    stand_in.settimeout(_REQUEST_TIMEOUT_S)
    with stand_in.makefile("rb") as content:
        request = marshal.load(content)
    stand_in.settimeout(None)
    return request


def _end_with(stand_in: socket.socket) -> None:
    """Spark ends a source by killing what it has started."""
    with contextlib.suppress(OSError):
        stand_in.recv(1)
    os._exit(1)
