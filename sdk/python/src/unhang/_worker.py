"""Starts Python processes that import a server's functions: jobs, and readers of signatures.

Invariant: such a process imports nothing from its working folder unless the server does so too. Clients start servers in the folder of a
project, which may have a file with the name of any module.
"""

from __future__ import annotations

import os
import sys

_FOLDER = "UNHANG_PYTHON_FOLDER"
_ON_WORKER = "UNHANG_ON_WORKER"

_is_worker = False
_folder: str | None = None

# `sys` is part of the interpreter, so nothing is imported before the working folder has left the path.
_BEGIN = "import sys; sys.path[:1] = [] if sys.path[:1] == [''] else sys.path[:1]; from {module} import start; start()"


def command(module: str, *words: str) -> list[str]:
    """Returns the command that calls `start` of a module of this package, with words behind it."""
    return [sys.executable, "-c", _BEGIN.format(module=module), *words]


def environment() -> dict[str, str]:
    """Returns the variables that a worker needs besides those of this process: where modules are imported from first."""
    return {_FOLDER: _folder or _first_folder()}


def _first_folder() -> str:
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == "__main__":
        # `python folder` and `python app.zip`
        return os.path.abspath(sys.path[0])
    # `python -m` and `python -c` import from the working folder, and `python script.py` from that of the script.
    return os.getcwd() if main is None or spec is not None else os.path.dirname(os.path.abspath(main))


def begin() -> list[str]:
    """Makes this process a worker, and returns the words behind its command."""
    global _is_worker, _folder
    _is_worker = True
    _folder = os.environ.pop(_FOLDER, None)
    if _folder is not None:
        sys.path[:] = [_folder] + [path for path in sys.path if path != _folder]
    return sys.argv[1:]


def begin_on_worker() -> list[str]:
    """Makes this process a worker on a machine that shares a store with others, and returns the words behind its command."""
    # The processes that the function starts are told too.
    os.environ[_ON_WORKER] = "1"
    return begin()


def is_on_worker() -> bool:
    """Returns whether this process is a job of `unhang worker`, or was started by one: it does not have the store, and its machine is any."""
    return _ON_WORKER in os.environ


def is_worker() -> bool:
    """Returns whether this process is one. Then a server's file is imported, and nobody is served."""
    return _is_worker
