"""Finds the program `unhang`, and compares its version with that of this package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from functools import lru_cache

from unhang._errors import UnhangError
from unhang._version import __version__

VARIABLE = "UNHANG_BINARY"
"""The environment variable with the path of the program, for everybody who keeps it in a place of their own."""

_VERSION_LIMIT = 30.0


class BinaryNotFoundError(UnhangError):
    """There is no program `unhang`."""


class VersionMismatchError(UnhangError):
    """Program and package are of different versions."""


@lru_cache(maxsize=None)
def binary() -> str:
    """Returns the absolute path of the program `unhang`: that of `UNHANG_BINARY`, of this environment's scripts, or of `PATH`.

    Raises `BinaryNotFoundError` if there is none, and `VersionMismatchError` if its version does not fit to this package.
    """
    found = _find()
    version = _version_of(found)
    if _series(version) != _series(__version__):
        raise VersionMismatchError(
            f"the program {found} is unhang {version}, and this Python package is unhang {__version__}; "
            f"install one version of both (`pip install unhang=={version}` takes the program's), or set {VARIABLE}"
        )
    return found


def _find() -> str:
    named = os.environ.get(VARIABLE)
    if named:
        path = shutil.which(os.path.abspath(named))
        if path is None:
            raise BinaryNotFoundError(f"{VARIABLE} is {named}, and no program is there")
        return path
    scripts = sysconfig.get_path("scripts")
    path = shutil.which("unhang", path=scripts) or shutil.which("unhang")
    if path is None:
        raise BinaryNotFoundError(
            f"there is no program `unhang` in {scripts} or on PATH; the wheel of this package brings it "
            f"(`pip install --force-reinstall unhang`), or set {VARIABLE} to its path"
        )
    return os.path.abspath(path)


def _version_of(path: str) -> str:
    try:
        told = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_VERSION_LIMIT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BinaryNotFoundError(f"{path} does not run: {error}") from error
    words = told.stdout.split()
    if told.returncode != 0 or len(words) != 2 or words[0] != "unhang":
        raise BinaryNotFoundError(f"{path} is not unhang: `--version` says {told.stdout.strip()!r}")
    return words[1]


def _series(version: str) -> tuple[str, ...]:
    """Returns the part of a version that program and package share: before 1.0, also the second number."""
    numbers = tuple(version.split("-")[0].split("."))
    return numbers[:2] if numbers[0] == "0" else numbers[:1]
