"""A server written with the official Python SDK whose tools ask their client, in each way that the SDK has.

`ask` and `sample` send a request in the middle of the call, which the SDK allows up to 2025-11-25. `resolve` declares what it
needs, and the SDK asks in the way of the client's revision.

Usage: python_asks.py [PORT]. With a port it serves HTTP, otherwise stdio.
"""

import sys
import warnings
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import SamplingMessage, TextContent
from pydantic import BaseModel

warnings.simplefilter("ignore", MCPDeprecationWarning)
server = MCPServer("asks")


class Name(BaseModel):
    name: str


@server.tool()
async def ask(context: Context) -> str:
    """Asks the user."""
    answer = await context.elicit("Your name?", Name)
    return f"hello {answer.data.name}" if answer.action == "accept" else answer.action


@server.tool()
async def sample(context: Context) -> str:
    """Asks the model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text="hi"))
    answer = await context.session.create_message(messages=[message], max_tokens=10)
    return answer.content.text


def user() -> Elicit[Name]:
    return Elicit("Your name?", Name)


@server.tool()
async def resolve(name: Annotated[Name, Resolve(user)]) -> str:
    """Asks the user in the way of the revision."""
    return f"hello {name.name}"


if len(sys.argv) > 1:
    server.run(transport="streamable-http", port=int(sys.argv[1]))
else:
    server.run()
