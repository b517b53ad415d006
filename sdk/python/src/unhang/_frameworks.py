"""The two frameworks, behind one interface: `MCPServer` of the official SDK, and `FastMCP`.

Invariant: this module uses what both frameworks document: a tool is a function with a signature. A tool of which only the schema is known
gets a function whose parameters carry that schema.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from unhang._errors import UnhangError

OFFICIAL = "mcp"
FASTMCP = "fastmcp"

Handler = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Takes the arguments of a call and returns a result of MCP, as JSON has it."""

_TYPES: dict[str, type] = {"string": str, "integer": int, "number": float, "boolean": bool, "object": dict, "array": list}


class Framework:
    """A server of one of the frameworks."""

    name = ""

    def __init__(self, server: Any) -> None:
        self.server = server

    @classmethod
    def empty(cls) -> Framework:
        """Makes a server without tools."""
        raise NotImplementedError

    def add_function(self, function: Callable[..., Any], name: str, description: str | None) -> None:
        """Adds a function as a tool, with the schema of its signature."""
        raise NotImplementedError

    async def listed(self) -> list[dict[str, Any]]:
        """Returns name, description and schema of all tools."""
        raise NotImplementedError

    def result(self, told: dict[str, Any]) -> Any:
        """Returns a result of MCP in the form that the framework passes on unchanged."""
        raise NotImplementedError

    def result_type(self) -> Any:
        """Returns the type of such a result."""
        raise NotImplementedError

    @classmethod
    def describe(cls, function: Callable[..., Any]) -> dict[str, Any]:
        """Returns name, description and schema that the function has as a tool. Raises `UnhangError` if it cannot be one."""
        server = cls.empty()
        try:
            server.add_function(function, function.__name__, None)
            found = server.tools()[0]
        except Exception as error:
            raise UnhangError(f"{function.__qualname__} cannot be a tool: {type(error).__name__}: {error}") from error
        offered = found["schema"].get("properties", {})
        for name in inspect.signature(function).parameters:
            if name not in offered:
                raise UnhangError(
                    f"the framework does not offer the parameter `{name}` of {function.__qualname__} by its name: it fills it itself, "
                    "or the parameter has an alias; a job gets what a call gives, so leave it out, or give it that name"
                )
        return found

    def tools(self) -> list[dict[str, Any]]:
        """Returns what `listed` returns, wherever the caller is."""
        # A loop may run in this thread, and another one cannot.
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(lambda: asyncio.run(self.listed())).result()

    def add_described(self, name: str, description: str, schema: dict[str, Any], handler: Handler) -> None:
        """Adds a tool with this schema, which `handler` answers."""
        parameters = _parameters(schema)
        optional = {parameter.name for parameter in parameters if parameter.default is None}

        async def call(**arguments: Any) -> Any:
            given = {key: value for key, value in arguments.items() if value is not None or key not in optional}
            return self.result(await handler(given))

        self._add(call, inspect.Signature(parameters), name, description)

    def _add(self, call: Callable[..., Any], signature: inspect.Signature, name: str, description: str) -> None:
        returned = self.result_type()
        call.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
        call.__annotations__ = {key: parameter.annotation for key, parameter in signature.parameters.items()}
        call.__annotations__["return"] = returned
        call.__name__ = call.__qualname__ = name
        self.add_function(call, name, description)


class Official(Framework):
    """`mcp.server.mcpserver.MCPServer`."""

    name = OFFICIAL

    @classmethod
    def empty(cls) -> Framework:
        from mcp.server.mcpserver import MCPServer

        return cls(MCPServer("description", log_level="ERROR"))

    def add_function(self, function: Callable[..., Any], name: str, description: str | None) -> None:
        self.server.add_tool(function, name=name, description=description, structured_output=False)

    async def listed(self) -> list[dict[str, Any]]:
        tools = await self.server.list_tools()
        return [{"name": tool.name, "description": tool.description or "", "schema": tool.input_schema} for tool in tools]

    def result_type(self) -> Any:
        from mcp.types import CallToolResult

        return CallToolResult

    def result(self, told: dict[str, Any]) -> Any:
        return self.result_type().model_validate(told)


class FastMcp(Framework):
    """`fastmcp.FastMCP`."""

    name = FASTMCP

    @classmethod
    def empty(cls) -> Framework:
        from fastmcp import FastMCP

        return cls(FastMCP("description"))

    def add_function(self, function: Callable[..., Any], name: str, description: str | None) -> None:
        self.server.tool(function, name=name, description=description, output_schema=None)

    async def listed(self) -> list[dict[str, Any]]:
        tools = await self.server.list_tools()
        return [{"name": tool.name, "description": tool.description or "", "schema": tool.parameters} for tool in tools]

    def result_type(self) -> Any:
        from fastmcp.tools import ToolResult

        return ToolResult

    def result(self, told: dict[str, Any]) -> Any:
        from mcp.types import CallToolResult

        result = CallToolResult.model_validate(told)
        return self.result_type()(
            content=result.content, structured_content=result.structured_content, is_error=bool(result.is_error)
        )


def of_server(server: Any) -> Framework:
    """Returns the framework of a server, or raises `TypeError`. No framework is imported for it: the server has done that."""
    for kind in type(server).__mro__:
        if kind.__name__ == "FastMCP" and kind.__module__.split(".")[0] == "fastmcp":
            return FastMcp(server)
        if kind.__name__ == "MCPServer" and kind.__module__.split(".")[0] == "mcp":
            return Official(server)
    kind = cast("type[Any]", type(server))
    raise TypeError(
        f"unhang.jobs takes an mcp.server.mcpserver.MCPServer (mcp 2) or a fastmcp.FastMCP, not a "
        f"{kind.__module__}.{kind.__qualname__}"
    )


def of_name(name: str) -> type[Framework]:
    """Returns the framework with this name."""
    return {OFFICIAL: Official, FASTMCP: FastMcp}[name]


def _parameters(schema: dict[str, Any]) -> list[inspect.Parameter]:
    """Returns parameters that carry the members of a schema. Required ones come first, as Python wants it."""
    from pydantic import WithJsonSchema

    definitions = schema.get("$defs", {})
    required = set(schema.get("required", ()))
    found: list[inspect.Parameter] = []
    for name, member in schema.get("properties", {}).items():
        member = _inlined(member, definitions, ())
        kind = _TYPES.get(str(member.get("type")), Any)
        is_required = name in required
        typed: Any = _annotated(kind if is_required else kind | None if kind is not Any else Any, WithJsonSchema(member))
        default = inspect.Parameter.empty if is_required else member.get("default")
        found.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=typed, default=default))
    return found


def _annotated(kind: Any, schema: Any) -> Any:
    from typing import Annotated

    return Annotated[kind, schema]


def _inlined(member: Any, definitions: dict[str, Any], above: tuple[str, ...]) -> Any:
    """Puts definitions in the place of references. A type that contains itself is not described further: unhang checks it."""
    if isinstance(member, list):
        return [_inlined(part, definitions, above) for part in cast("list[Any]", member)]
    if not isinstance(member, dict):
        return member
    schema = cast("dict[str, Any]", member)
    reference = str(schema.get("$ref", ""))
    name = reference.removeprefix("#/$defs/")
    if reference and name in definitions:
        if name in above:
            return {}
        rest = {key: part for key, part in schema.items() if key != "$ref"}
        return {**_inlined(definitions[name], definitions, (*above, name)), **rest}
    return {key: _inlined(part, definitions, above) for key, part in schema.items()}
