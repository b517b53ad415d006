"""Functions on workers of a store that machines share: the names that servers write, and the process that a worker starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import unhang
from unhang._target import shared_name_of

Write = Callable[[str, str], Path]

SERVER = """
{framework}
import unhang

server = Server("plant")
jobs = unhang.jobs(server)

@jobs.job
def of_script(flow: float) -> float:
    return flow

jobs.add("models.design:size")

for table in jobs._gateway._tools:
    print(table)
"""

DESIGN = """
import subprocess, sys
from os import system
import unhang

def size(flow: float) -> float:
    return 2 * flow

def state() -> object:
    return unhang.state.get("mesh")

def state_of_child() -> str:
    program = "import unhang; unhang.state.get('mesh')"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stderr

def large() -> str:
    return "x" * (17 << 20)
"""

START = "from unhang.run import start_on_worker; start_on_worker()"


def test_a_server_writes_the_name_under_which_workers_know_a_function(write: Write, framework: str) -> None:
    write("models/__init__.py", "")
    write("models/design.py", DESIGN)
    script = write("plant.py", SERVER.format(framework=framework))
    told = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    # Other machines do not have the file of a script.
    assert [line for line in told.stdout.splitlines() if line.startswith("function")] == ['function = "models.design:size"']


def test_only_names_are_names() -> None:
    for name in ("a:b", "models.design:size", "_a.b_1:_c"):
        assert shared_name_of(name) == name
    for name in ("/a/b.py:c", "a.py:", "a:b\n", "a.__main__:b", "a:__b__", "größe:b", "1a:b", "a..b:c", f"{'a' * 256}:b"):
        assert shared_name_of(name) is None


def started(tmp_path: Path, target: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Runs a function as a worker does, and returns what it leaves."""
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "input.json").write_text(json.dumps(arguments))
    variables = {**os.environ, "UNHANG_JOB_DIR": str(folder), "UNHANG_PYTHON_FOLDER": str(tmp_path)}
    subprocess.run([sys.executable, "-c", START, target], env=variables, check=False, capture_output=True)
    found: dict[str, Any] = {path.name: json.loads(path.read_text()) for path in folder.iterdir() if path.name != "input.json"}
    return found


@pytest.fixture
def models(write: Write) -> None:
    write("models/__init__.py", "from models.design import size\n")
    write("models/design.py", DESIGN)


def test_a_worker_runs_what_a_module_defines(models: None, tmp_path: Path) -> None:
    assert started(tmp_path, "models.design:size", {"flow": 1.5}) == {"results.json": 3.0}


@pytest.mark.parametrize("target", ["models.design:system", "models:size"])
def test_a_worker_refuses_what_a_module_has_only_imported(models: None, tmp_path: Path, target: str) -> None:
    left = started(tmp_path, target, {"command": f"touch {tmp_path}/taken", "flow": 1})
    assert not (tmp_path / "taken").exists()
    assert left["error.json"]["kind"] == "TargetError"
    assert "a worker runs the functions that a module defines" in left["error.json"]["message"]


def test_a_job_on_a_worker_is_told_that_it_has_no_store(models: None, tmp_path: Path) -> None:
    told = "neither the jobs nor the state of the store"
    assert told in started(tmp_path, "models.design:state", {})["error.json"]["message"]


def test_a_process_of_such_a_job_is_told_so_too(models: None, tmp_path: Path) -> None:
    told = "neither the jobs nor the state of the store"
    assert told in started(tmp_path, "models.design:state_of_child", {})["results.json"]


def test_a_result_that_cannot_travel_is_an_error(models: None, tmp_path: Path) -> None:
    left = started(tmp_path, "models.design:large", {})
    assert list(left) == ["error.json"]
    assert left["error.json"]["kind"] == "ResultTooLarge"
