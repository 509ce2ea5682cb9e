"""Virtual environments with other people's packages, made once in `.cache`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tests.support.maven import CACHE, locked


class NotAvailable(Exception):
    """A package cannot be had: there is no network, or it is not there."""


def python(name: str, *packages: str) -> Path:
    """The interpreter that has these packages. Their versions belong into the name, or do not change."""
    folder = CACHE / name
    ready = folder / ".ready"
    with locked(folder.name):
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, symlinks=True)
            _install(folder, packages)
            ready.touch()
    return folder / "bin" / "python"


def _install(folder: Path, packages: tuple[str, ...]) -> None:
    """With the pip and the setuptools that are here: to fetch them once more takes longer."""
    command = [sys.executable, "-m", "pip", f"--python={folder}", "install", "--quiet", "--no-compile"]
    command += ["--disable-pip-version-check", "--no-cache-dir"]
    done = subprocess.run([*command, *packages], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotAvailable(f"{', '.join(packages)} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
