"""The server of the bench: one job tool of its own, or five of a module that it never imports, or none."""

import os
import sys


def note(token: str, file: str) -> str:
    """Writes down that it ran."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(handle, (token + "\n").encode())
    return token


def about() -> str:
    """Says what this is."""
    return "the bench"


def main(program: str, tools: str) -> None:
    """Serves."""
    # A job loads this file too, and needs no framework.
    from mcp.server.mcpserver import MCPServer

    os.environ["UNHANG_BINARY"] = program
    server = MCPServer("bench")
    server.add_tool(about)
    if tools != "none":
        import unhang

        jobs = unhang.jobs(server)
        if tools == "one":
            jobs.job(note)
        else:
            for name in ("note", "b", "c", "d", "e"):
                jobs.add(f"work:{name}")
    server.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
