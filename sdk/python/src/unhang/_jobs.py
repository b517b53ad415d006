"""`unhang.jobs(server)`: tools of a server that answer at once with the id of a job."""

from __future__ import annotations

import functools
import json
import os
import re
import weakref
from collections.abc import Callable
from importlib import resources
from typing import Any, TypeVar, overload

from unhang import _toml, _worker
from unhang._arguments import typed
from unhang._binary import VARIABLE, binary
from unhang._errors import UnhangError
from unhang._frameworks import Framework, of_server
from unhang._gateway import Gateway
from unhang._handle import command
from unhang._json import NotJsonError, to_json
from unhang._names import RESULTS
from unhang._schema import describe
from unhang._target import check_binding, name_of, shared_name_of

Function = TypeVar("Function", bound=Callable[..., Any])

_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_STATE_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
# The program counts nanoseconds in 64 bits, so the numbers are short.
_TIMEOUT = re.compile(r"\s*(?:\d{1,9}(?:\.\d{1,6})?\s*(?:ms|s|m|h|d|w)\s*)+", re.ASCII)
_LONGEST_TIMEOUT_YEARS = 100
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

_EXAMPLES = {"timeout": '"30m"', "state": '"design"'}

_known: weakref.WeakKeyDictionary[Any, Jobs] = weakref.WeakKeyDictionary()


def jobs(server: Any) -> Jobs:
    """Adds the job tools to a server, once, and returns what turns functions into jobs.

    `server` is an `mcp.server.mcpserver.MCPServer` or a `fastmcp.FastMCP`. Raises `BinaryNotFoundError` if the program `unhang` is not
    installed.
    """
    framework = of_server(server)
    found = _known.get(server)
    if found is None:
        found = _known[server] = Jobs(framework)
    return found


class Jobs:
    """The jobs of one server."""

    def __init__(self, framework: Framework) -> None:
        self._framework = framework
        self._gateway = Gateway()
        self._names: set[str] = set()
        self._has_state = False
        # A server file that a job imports offers nothing to anybody.
        self._is_worker = _worker.is_worker()
        if not self._is_worker:
            binary()
            self._add_tools(state=False)

    @overload
    def job(self, function: Function, /) -> Function: ...

    @overload
    def job(
        self, /, *, name: str | None = None, timeout: str | None = None, state: str | None = None, description: str | None = None
    ) -> Callable[[Function], Function]: ...

    def job(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        timeout: str | None = None,
        state: str | None = None,
        description: str | None = None,
    ) -> Any:
        """Makes a function a tool that starts a job. The function itself stays as it is, and can be called as before.

        `name` is the name of the tool (default: that of the function). `timeout` is a text with a unit, such as `"30m"` (default: no
        limit). `state` is the field of the state that receives the result. `description` is for the model (default: the docstring).

        Raises `TypeError` if the function cannot be a job: a lambda, a function inside a function, or one with arguments without a type.
        Raises `UnhangError` if the framework refuses it, or a name or a time has a wrong form.
        """
        if function is None:
            return functools.partial(self._decorate, name=name, timeout=timeout, state=state, description=description)
        return self._decorate(function, name=name, timeout=timeout, state=state, description=description)

    def add(
        self,
        target: str,
        *,
        name: str | None = None,
        timeout: str | None = None,
        state: str | None = None,
        description: str | None = None,
    ) -> None:
        """Makes the function `module:function` such a tool. This process never imports the module: another one reads the signature.

        Raises `UnhangError` if the function cannot be found or cannot be a job.
        """
        if self._is_worker:
            return
        found = describe(self._framework.name, target)
        name = target.rpartition(":")[2] if name is None else name
        schema = found.schema
        keys = self._declare(name, target, timeout, state, schema)
        self._framework.add_described(name, description or found.description, schema, functools.partial(self._call, name))
        self._gateway.add(keys)

    def _decorate(
        self, function: Function, *, name: str | None, timeout: str | None, state: str | None, description: str | None
    ) -> Function:
        if self._is_worker:
            return function
        target = name_of(function)
        name = function.__name__ if name is None else name
        found = self._framework.describe(function)
        # The types are checked here, and the function gets the arguments as they came.
        keys = self._declare(name, target, timeout, state, {"additionalProperties": True})
        handler = functools.partial(self._call_typed, name, function)
        self._framework.add_described(name, description or found["description"], found["schema"], handler)
        self._gateway.add(keys)
        return function

    def _declare(
        self, name: str, target: str, timeout: str | None, state: str | None, schema: dict[str, Any]
    ) -> str:
        """Returns the table of the tool in the gateway's configuration."""
        self._check(name, timeout, state)
        self._names.add(name)
        if state is not None and not self._has_state:
            self._has_state = True
            self._add_tools(state=True)
        return _toml.tool(
            name,
            {
                "command": _toml.literal(command(target)),
                "mode": "job",
                "cwd": os.getcwd(),
                "inherit-env": True,
                "env": {**_worker.environment(), VARIABLE: binary()},
                "input-schema": schema,
                "results": RESULTS,
                "timeout": timeout,
                "state": None if state is None else {"field": state},
                "function": shared_name_of(target),
            },
        )

    def _check(self, name: str, timeout: str | None, state: str | None) -> None:
        """Raises `UnhangError` where a mistake was made, and not at the first call."""
        given: dict[str, object] = {"timeout": timeout, "state": state}
        for key, value in given.items():
            if not isinstance(value, (str, type(None))):
                raise TypeError(f'the {key} of `{name}` is {value!r}; write a text, such as {_EXAMPLES[key]}')
        if not _TOOL_NAME.fullmatch(name):
            raise UnhangError(f"{name!r} is not a name for a tool: use letters, digits, _, - and ., at most 128")
        if name in {tool["name"] for tool in _job_tools()}:
            raise UnhangError(f"`{name}` is the name of a tool that unhang itself offers; give your tool another `name`")
        if name in self._names:
            raise UnhangError(f"this server has a job tool `{name}` already; give one of the two another `name`")
        if any(tool["name"] == name for tool in self._framework.tools()):
            raise UnhangError(f"this server has a tool `{name}` already; give one of the two another name")
        if timeout is not None and not _is_timeout(timeout):
            raise UnhangError(
                f'the timeout of `{name}` is {timeout!r}; write a number with a unit, such as "90s" or "30m", '
                f"of at most {_LONGEST_TIMEOUT_YEARS} years"
            )
        if state is not None and not _STATE_FIELD.fullmatch(state):
            raise UnhangError(
                f"{state!r} is not a name of a state field: write a letter or _, then letters, digits, _, - and ., at most 64"
            )

    def _add_tools(self, *, state: bool) -> None:
        """Adds the tools about jobs, or those about the state."""
        known = {tool["name"] for tool in self._framework.tools()}
        for tool in _job_tools():
            if tool["name"].endswith("_state") == state:
                if tool["name"] in known:
                    raise UnhangError(f"this server has a tool `{tool['name']}` already, which is the name of a tool about jobs; rename it")
                handler = functools.partial(self._call, tool["name"])
                self._framework.add_described(tool["name"], tool["description"], tool["inputSchema"], handler)

    async def _call_typed(self, name: str, function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            check_binding(function)
            typed(function, arguments)
        except (TypeError, ValueError) as error:
            return _refusal(error)
        return await self._call(name, arguments)

    async def _call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            # The framework has made objects of some arguments.
            plain = {key: to_json(value, f"the argument `{key}`") for key, value in arguments.items()}
            return await self._gateway.call(name, plain)
        except (UnhangError, NotJsonError) as error:
            return _refusal(error)


def _is_timeout(text: str) -> bool:
    if not _TIMEOUT.fullmatch(text):
        return False
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in re.findall(r"([\d.]+)\s*([a-z]+)", text))
    return 0 < seconds <= _LONGEST_TIMEOUT_YEARS * 365 * _SECONDS["d"]


def _refusal(error: Exception) -> dict[str, Any]:
    # A framework hides the text of an exception from the client.
    return {"content": [{"type": "text", "text": str(error)}], "isError": True}


@functools.lru_cache(maxsize=None)
def _job_tools() -> list[dict[str, Any]]:
    text = resources.files("unhang").joinpath("job_tools.json").read_text(encoding="utf-8")
    return list(json.loads(text))
