"""The example `examples/digester`: a blocking server becomes one with jobs by three changed lines for each tool at most."""

from __future__ import annotations

import asyncio
import difflib
import time
from pathlib import Path

import pytest

from client import connected, python

FOLDER = Path(__file__).parents[3] / "examples/digester"
BASIS = {"flow_m3_d": 100, "cod_kg_m3": 40}
DESIGN = {**BASIS, "srt_days": 20.0, "volume_m3": 2000.0, "load_kg_m3_d": 2.0}


def test_few_lines_change() -> None:
    before, after = [(FOLDER / name).read_text().splitlines() for name in ("server_blocking.py", "server_jobs.py")]
    changed = [line for line in difflib.ndiff(before, after) if line.startswith("+ ")]
    # The docstring, the import, the jobs of the server, and one line for each of the two tools.
    assert len(changed) == 5, changed


def test_the_blocking_server_blocks_and_the_other_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIGESTER_IMPORT_SECONDS", "4")

    async def main() -> None:
        async with connected(*python(str(FOLDER / "server_blocking.py"))) as session:
            begin = time.monotonic()
            assert "2000.0" in await session.text("size_digester", **BASIS)
            assert time.monotonic() - begin >= 4
        async with connected(*python(str(FOLDER / "server_jobs.py"))) as session:
            begin = time.monotonic()
            started = await session.call("size_digester", **BASIS)
            assert time.monotonic() - begin < 3
            assert (await session.ended(started["job_id"]))["results"] == DESIGN
            state = await session.call("get_state", field="digester_design")
            assert state["value"] == DESIGN

    asyncio.run(main())
