"""The guard in front of a server, for programs that use the official client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unhang._binary import binary

if TYPE_CHECKING:
    from mcp import StdioServerParameters


def guard(
    command: str, *arguments: str, name: str | None = None, env: dict[str, str] | None = None, cwd: str | None = None
) -> StdioServerParameters:
    """Returns the parameters of a stdio client for this server, with `unhang wrap` in front of it.

    `name` is the server's name in logs and errors. `env` and `cwd` go to the server as without the guard.
    """
    from mcp import StdioServerParameters

    options = [] if name is None else ["--name", name]
    return StdioServerParameters(command=binary(), args=["wrap", *options, "--", command, *arguments], env=env, cwd=cwd)
