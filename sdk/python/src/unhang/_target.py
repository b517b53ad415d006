"""Names a function so that another process finds it: `module:function`, or `/path/of/file.py:function`.

The file is for functions of a script: a script has no name by which it could be imported.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import runpy
import sys
from collections.abc import Callable
from typing import Any

from unhang import _worker

SCRIPT_NAME = "__unhang_job__"
"""The `__name__` of a script in a job, so that what stands behind `if __name__ == "__main__":` does not run."""


_SHARED = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]*(?:\.(?!__)[A-Za-z_][A-Za-z0-9_]*)*:(?!__)[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_SHARED = 256

_CONTEXT = re.compile(r"(?:^|\b(?:mcp|fastmcp)\.[\w.]*\.)Context\b")

_script: str | None = None
"""The script that this process has loaded under that name."""


class TargetError(TypeError):
    """The function cannot be found, or cannot be a job."""


def name_of(function: Callable[..., Any]) -> str:
    """Returns the name of a function, or raises `TargetError` with the way out if no other process could find it."""
    name = getattr(function, "__qualname__", None)
    module = getattr(function, "__module__", None)
    if not inspect.isroutine(function) or name is None or module is None:
        raise TargetError(f"{function!r} is not a function; write a function that calls it")
    if "<lambda>" in name:
        raise TargetError("a lambda has no name that another process could import; write it as a function with `def`")
    if "<locals>" in name:
        raise TargetError(
            f"{name} is defined inside another function, and a job runs in another process; move it to the top of its module"
        )
    if "." in name:
        raise TargetError(f"{name} is a method; write a function at the top of a module that makes the object and calls it")
    check_signature(function)
    check_binding(function)
    return f"{_place(module, name)}:{name}"


def shared_name_of(target: str) -> str | None:
    """Returns the name under which the workers of other machines know a function, or `None` if they cannot import it by a name."""
    return target if len(target) <= _LONGEST_SHARED and _SHARED.fullmatch(target) else None


def check_binding(function: Callable[..., Any]) -> None:
    """Raises `TargetError` if the name of the function stands for another function by now. A decorator around it may be there."""
    found = getattr(sys.modules.get(function.__module__), function.__name__, function)
    is_another = getattr(found, "__qualname__", None) == function.__qualname__ and not hasattr(found, "__wrapped__")
    if is_another and getattr(found, "__code__", None) is not getattr(function, "__code__", None):
        raise TargetError(
            f"the name {function.__name__} of {function.__module__} stands for another function than this one, "
            "and a job finds a function by its name; give the two different names"
        )


def check_signature(function: Callable[..., Any]) -> None:
    """Raises `TargetError` if a parameter of the function has no JSON form."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TargetError(f"{function.__qualname__} is a generator; return a list, or report each step by `unhang.progress`")
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:
        raise TargetError(f"{function.__qualname__} has no signature; write a function with `def` that calls it") from error
    for parameter in parameters:
        kinds = {
            inspect.Parameter.VAR_POSITIONAL: f"*{parameter.name}",
            inspect.Parameter.VAR_KEYWORD: f"**{parameter.name}",
            inspect.Parameter.POSITIONAL_ONLY: f"the positional-only parameter {parameter.name}",
        }
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY):
            raise TargetError(
                f"{function.__qualname__} has {kinds[parameter.kind]}, and a tool has named arguments only; "
                "name each argument, with a type"
            )
        if parameter.annotation is parameter.empty:
            raise TargetError(
                f"the parameter `{parameter.name}` of {function.__qualname__} has no type; "
                f"write one, for example `{parameter.name}: float`"
            )
        if _CONTEXT.search(str(parameter.annotation)):
            raise TargetError(
                f"the parameter `{parameter.name}` of {function.__qualname__} is the context of a request, and a job has none; "
                "leave it out, and call unhang.progress and unhang.log"
            )


def _place(module: str, name: str) -> str:
    if module == SCRIPT_NAME and _script is not None:
        # A job of a script submits another one.
        return _script
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        # `python -m package.module` can be imported by its name.
        return str(spec.name)
    file: str | None = getattr(main, "__file__", None)
    # The main file of an archive, and that of `python -`, are no files.
    if file is None or not os.path.isfile(file):
        raise TargetError(
            f"{name} is defined in a notebook, an interactive session, an archive or a script from stdin, "
            "which another process cannot import; move it to a module"
        )
    return os.path.abspath(file)


def load(target: str) -> Callable[..., Any]:
    """Imports the function with this name, or raises `TargetError`. Errors of the module itself go through."""
    global _script
    place, _, name = target.rpartition(":")
    if not place:
        raise TargetError(f"{target!r} is not a function; write module:function")
    if os.path.isabs(place):
        _script = place
        found = runpy.run_path(place, run_name=SCRIPT_NAME).get(name)
    else:
        found = getattr(importlib.import_module(place), name, None)
    if not inspect.isroutine(found):
        what = "has no" if found is None else "has another kind of"
        raise TargetError(f"{place} {what} function {name}")
    function: Callable[..., Any] = found
    if _worker.is_on_worker():
        _check_origin(place, function)
    return function


def _check_origin(module: str, function: Callable[..., Any]) -> None:
    """Raises `TargetError` if the module has only imported the function, as `from os import system` does.

    A worker's owner allows functions by the names of their modules, and whoever writes into the store chooses the name.
    """
    origin = getattr(function, "__module__", None)
    if origin != module:
        raise TargetError(
            f"{function.__name__} of {module} is a function of {origin}, and a worker runs the functions that a module defines; "
            f"name it {origin}:{function.__name__}"
        )
