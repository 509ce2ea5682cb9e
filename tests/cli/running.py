"""Run the real command in this process, and catch what it prints."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from typing import Any

from penstock.cli import main


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Command:
    """The `penstock` command for one cluster."""

    def __init__(self, bootstrap: str | None) -> None:
        self._bootstrap = bootstrap

    def __call__(self, *arguments: str, stdin: str | bytes = b"") -> Result:
        """Run it; fails the test if the command does."""
        result = self.run(*arguments, stdin=stdin)
        assert result.code == 0, result
        return result

    def json(self, *arguments: str, stdin: str | bytes = b"") -> Any:
        return self(*arguments, "--json", stdin=stdin).json

    def fails(self, *arguments: str, code: int, stdin: str | bytes = b"") -> str:
        """The one line that it fails with."""
        result = self.run(*arguments, stdin=stdin)
        assert result.code == code, result
        (line,) = result.err.splitlines()
        assert line.startswith("penstock: "), line
        return line

    def run(self, *arguments: str, stdin: str | bytes = b"") -> Result:
        argv = ["penstock", *arguments]
        if self._bootstrap is not None:
            argv += ["--bootstrap", self._bootstrap]
        content = stdin.encode() if isinstance(stdin, str) else stdin
        streams = [io.TextIOWrapper(io.BytesIO(initial), encoding="utf-8") for initial in (content, b"", b"")]
        saved = (sys.argv, sys.stdin, sys.stdout, sys.stderr)
        sys.argv, (sys.stdin, sys.stdout, sys.stderr) = argv, streams
        try:
            main.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            sys.argv, sys.stdin, sys.stdout, sys.stderr = saved
        for stream in streams[1:]:
            stream.flush()
        return Result(code, *(stream.buffer.getvalue().decode() for stream in streams[1:]))  # type: ignore[attr-defined]
