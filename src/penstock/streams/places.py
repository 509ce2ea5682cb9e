"""Where in the user's program something was asked for, and errors that say so."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from penstock.client.errors import ConfigurationError

_HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Place:
    """A line of the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


class TopologyError(ConfigurationError):
    """A topology that cannot be: the text says where in the program, what is wrong, and what to do."""

    def __init__(self, place: Place, text: str) -> None:
        super().__init__(f"{place}: {text}")
        self.place = place
        self.text = text

    def __reduce__(self) -> tuple[type[TopologyError], tuple[Place, str]]:
        return TopologyError, (self.place, self.text)


def caller() -> Place:
    """The innermost line that is not ours."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno)
