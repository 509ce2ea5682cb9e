"""What goes wrong, as one line for a person: exit code 2 for what was typed, 1 for what happened."""

from __future__ import annotations

import contextlib
import os
import sys

import typer

from penstock.client.errors import ConfigurationError, PenstockError
from penstock.log.directory import DirectoryError

FAILURE, USAGE = 1, 2


class Mistake(Exception):
    """Something that was typed cannot be. The message says what, and what to do."""


class Failure(Exception):
    """What was asked for did not work out. The message says why, and what to do."""


class ReaderGone(Exception):
    """Whoever read our output has enough of it: `penstock consume ... | head`."""


def report(error: BaseException) -> int:
    """Print the line for an error, and return the exit code. Raises it again if it is a mistake of ours."""
    if isinstance(error, typer.TyperException):
        message = error.format_message()
        return _say(message, USAGE) if message else 0  # help was shown, which is what a command without arguments gets
    if isinstance(error, (Mistake, ConfigurationError)):
        return _say(str(error), USAGE)
    if isinstance(error, (Failure, PenstockError, DirectoryError)):
        return _say(str(error), FAILURE)
    if isinstance(error, ReaderGone):
        return _discard_output()
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return _say(f"{place}{error.strerror or error}", FAILURE)
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        return 130
    raise error


def _say(message: str, code: int) -> int:
    text = "; ".join(line.strip() for line in message.splitlines() if line.strip())
    print(f"penstock: {text}", file=sys.stderr)
    return code


def _discard_output() -> int:
    """What is still to be written goes nowhere, without complaint."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
