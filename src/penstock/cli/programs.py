"""Programs of users: finding the Streams application in a file."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any

from penstock.cli.mistakes import Failure, Mistake
from penstock.client.errors import PenstockError
from penstock.streams import Application

_NAME = "penstock_program"  # not __main__: what a program does only when it is run itself is left out


def is_program(given: str) -> bool:
    """Whether a file is meant, not the id of an application."""
    return given.partition(":")[0].endswith(".py") or os.sep in given


def load(given: str) -> Application:
    """The application in `app.py`, or the one that `app.py:name` names."""
    file, _, name = given.partition(":")
    found = _run(Path(file))
    if name:
        return _named(found, name, file)
    applications = {id(one): key for key, one in found.items() if isinstance(one, Application)}
    if not applications:
        raise Mistake(f"{file} has no application: make one at the top of it, as in app = Application('shop')")
    if len(applications) > 1:
        names = sorted(applications.values())
        raise Mistake(f"{file} has several applications ({', '.join(names)}): name one, as in {file}:{names[0]}")
    (only,) = applications.values()
    return _named(found, only, file)


def _named(found: dict[str, Any], name: str, file: str) -> Application:
    one = found.get(name)
    if isinstance(one, Application):
        return one
    if name not in found:
        raise Mistake(f"{file} has no {name}")
    raise Mistake(f"{name} in {file} is no Application, but a {type(one).__name__}")


def _run(path: Path) -> dict[str, Any]:
    """What a program has defined. Its folder can be imported from, here and in the tasks of Spark."""
    if not path.is_file():
        raise Mistake(f"there is no file {path}")
    folder = str(path.absolute().parent)
    sys.path.insert(0, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    try:
        return runpy.run_path(str(path), run_name=_NAME)
    except PenstockError:
        raise
    except SyntaxError as error:
        raise Failure(f"{path.name}:{error.lineno}: {error.msg}") from None
    except Exception as error:
        lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == str(path)]
        place = f"{path.name}:{lines[-1]}" if lines else path.name
        raise Failure(f"{place}: {type(error).__name__}: {error}") from None
