"""What the tests share: a data folder for each test, and folders with servers."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

FRAMEWORKS = {
    "mcp": "from mcp.server.mcpserver import MCPServer as Server",
    "fastmcp": "from fastmcp import FastMCP as Server",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Gives each test a data folder of its own, and demands that no process of its jobs is left."""
    folder = tmp_path / "unhang-home"
    monkeypatch.setenv("UNHANG_HOME", str(folder))
    monkeypatch.chdir(tmp_path)
    yield folder
    marker = f"UNHANG_HOME={folder}".encode()
    deadline = time.monotonic() + 20
    while left := [pid for pid, variables in _environments() if marker in variables]:
        assert time.monotonic() < deadline, f"processes are left: {[_command(pid) for pid in left]}"
        # Between two looks at /proc, which cannot be waited on.
        time.sleep(0.05)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return f"{pid}, which has ended"


def _environments() -> Iterator[tuple[int, list[bytes]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                yield int(entry.name), (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue


@pytest.fixture(params=sorted(FRAMEWORKS))
def framework(request: pytest.FixtureRequest) -> str:
    """The line that imports the framework."""
    return FRAMEWORKS[request.param]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Writes a file below the working folder of the test."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write
