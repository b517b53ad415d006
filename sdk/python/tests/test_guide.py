"""The blocks of the guide, as somebody pastes them."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import unhang
from client import connected, python

Write = Callable[[str, str], Path]

GUIDE = Path(__file__).parents[3] / "docs/guide/python.md"


def block(containing: str) -> str:
    """Returns the only block of Python that has this text."""
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if containing in block]
    return str(found)


def test_the_quick_start_works_when_it_is_pasted(write: Write) -> None:
    script = write("server.py", block("MCPServer"))

    async def main() -> None:
        async with connected(*python(str(script))) as session:
            results = await session.run("simulate", cod=4.5)
            assert results["results"] == {"cod": 4.5, "days": 30}

    asyncio.run(main())


def test_the_script_works_when_it_is_pasted(write: Write) -> None:
    write("work.py", "def add(a: int, b: int = 2) -> int:\n    return a + b\n")
    script = write("script.py", block("unhang.submit"))
    told = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=90)
    id, result = told.stdout.split()
    assert result == "42" and unhang.get(id).result() == 42, told.stderr
