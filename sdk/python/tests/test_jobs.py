"""Functions as jobs of scripts: what they return, raise and do to their process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import unhang

Write = Callable[[str, str], Path]


@pytest.fixture
def work(write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module `work`, which jobs import too."""
    write("work.py", WORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    sys.modules.pop("work", None)
    import work  # type: ignore[import-not-found]

    assert isinstance(work, ModuleType)
    return work


WORK = '''
import asyncio, dataclasses, datetime, os, sys, threading, time
import unhang

@dataclasses.dataclass
class Point:
    x: float
    y: float

def add(a: int, b: int = 2) -> int:
    return a + b

async def later(number: int) -> int:
    await asyncio.sleep(0)
    return number

def rich() -> dict:
    import numpy
    import pydantic

    class Model(pydantic.BaseModel):
        at: datetime.date

    return {
        "array": numpy.arange(4).reshape(2, 2),
        "scalar": numpy.float64(1.5),
        "point": Point(1, 2),
        "model": Model(at=datetime.date(2026, 1, 2)),
        "set": {1},
    }

def noisy() -> str:
    print("no end of the line", end="")
    unhang.progress(0.5, "half")
    print("more")
    os.chdir("/")
    os.write(1, b"raw")
    return str(unhang.job_dir().exists())

def fails(text: str) -> None:
    raise ValueError(f"{text} {os.environ['THE_TOKEN']}")

def exits() -> None:
    os._exit(0)

def leaves() -> None:
    sys.exit(3)

def not_json() -> dict:
    return {"a": [1, {"b": object()}]}

def not_finite() -> dict:
    return {"rate": float("nan")}

def forks() -> int:
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    return pid and 1

def threads() -> str:
    threading.Thread(target=time.sleep, args=(600,)).start()
    return "done"

def large() -> str:
    return "x" * 100_000_000

def endless() -> None:
    unhang.progress(0.25, "a quarter")
    unhang.log("begun")
    try:
        while True:
            time.sleep(0.05)
    except Exception:
        pass
    except unhang.Cancelled:
        unhang.log(f"cancelled: {unhang.is_cancelled()}")
        raise

def echo(value: dict) -> dict:
    return value

def reports() -> str:
    for fraction in (1.0000000000000002, -1, float("inf"), float("nan"), "x"):
        unhang.progress(fraction)
    sys.stdout = None
    unhang.progress(0.5)
    return "done"

def no_memory() -> None:
    raise MemoryError

def leaves_secret() -> None:
    sys.exit("bad token " + os.environ.pop("THE_TOKEN"))

def secrets() -> None:
    raise ValueError(" ".join([os.environ["B_KEY"], os.environ["C_URL"], "with pass-word-of-it", os.environ["DB_PASS"]]))

def times() -> dict:
    import pathlib, numpy
    return {
        "days": numpy.array(["2020-01-01"], dtype="datetime64[D]"),
        "nanoseconds": numpy.datetime64("2020-01-01T00:00:00.000000001"),
        "place": pathlib.Path(os.fsdecode(b"caf\\xe9")),
        "long": "ü" * 9_000_000,
    }

def duration() -> dict:
    import numpy
    return {"a": numpy.array([5], dtype="timedelta64[ns]")}

def long_float() -> dict:
    import numpy
    return {"a": numpy.longdouble(1)}

def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds

def uses_state() -> int:
    count = unhang.state.get("count", 0) + 1
    unhang.state.set("count", count)
    return count

def whole() -> dict:
    return {"n": [1 << 64]}

def deep() -> list:
    value: list = []
    for _ in range(101):
        value = [value]
    return value

def twice() -> dict:
    return {1: 2, "1": 3}

def half() -> dict:
    return {"half \\ud83d": "\\udc80"}

def lines() -> None:
    raise ValueError(f"{os.environ['THE_KEY']!r}")

class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

def silent() -> None:
    raise Silent

def outside() -> int:
    return int(unhang.submit(add, 40, b=2).wait(60))

def generator() -> list:
    yield 1

def starred(*numbers: int) -> None: ...
def bare(number): ...

def outer():
    def inner() -> None: ...
    return inner

LAMBDA = lambda: None

class Kind:
    def method(self) -> None: ...
'''


def test_a_function_runs_with_its_arguments(work: ModuleType) -> None:
    job = unhang.submit(work.add, 40, b=2)
    assert job.wait(60) == 42
    assert unhang.get(job.id).result() == 42
    assert job.status()["status"] == "completed" and job.status()["name"] == "add"
    assert unhang.submit(work.later, 7).wait(60) == 7


def test_results_of_libraries_are_json(work: ModuleType) -> None:
    assert unhang.submit(work.rich).wait(60) == {
        "array": [[0, 1], [2, 3]],
        "scalar": 1.5,
        "point": {"x": 1.0, "y": 2.0},
        "model": {"at": "2026-01-02"},
        "set": [1],
    }


def test_what_a_function_prints_does_not_hide_its_progress(work: ModuleType) -> None:
    job = unhang.submit(work.noisy)
    assert job.wait(60) == "True"
    assert job.logs() == 'no end of the line\n{"progress": 0.5, "message": "half"}\nmore\nraw'


def test_an_exception_is_told_without_secrets(work: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_TOKEN", "hunter2-hunter2")
    job = unhang.submit(work.fails, "it is negative")
    with pytest.raises(unhang.JobFailedError, match="it is negative") as failure:
        job.wait(60)
    assert failure.value.status == "failed"
    told = str(failure.value.report) + job.logs("stderr")
    assert "work.py" in told and "hunter2" not in told and "[THE_TOKEN]" in told


def test_a_secret_of_several_lines_is_told_in_no_form(work: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "begin-of-key\nline-of-key\n")
    job = unhang.submit(work.lines)
    with pytest.raises(unhang.JobFailedError) as failure:
        job.wait(60)
    told = str(failure.value.report) + job.logs("stderr")
    assert "[THE_KEY]" in told and "line-of-key" not in told


def test_secrets_are_masked_wherever_they_are(work: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "db://me:pass-word-of-it@host/x"
    for name, value in {"A_KEY": "shared12345", "B_KEY": "shared12345-and-more", "C_URL": url, "DB_PASS": "opensesame"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(unhang.JobFailedError, match=r"\[B_KEY\] \[C_URL\] with \[C_URL\] \[DB_PASS\]"):
        unhang.submit(work.secrets).wait(60)
    monkeypatch.setenv("THE_TOKEN", "hunter2-hunter2")
    with pytest.raises(unhang.JobFailedError, match=r"bad token \[THE_TOKEN\]") as caught:
        unhang.submit(work.leaves_secret).wait(60)
    assert caught.value.report["error"]["kind"] == "SystemExit"


def test_a_report_that_is_no_progress_loses_no_work(work: ModuleType) -> None:
    job = unhang.submit(work.reports)
    assert job.wait(60) == "done"
    told = [json.loads(line)["progress"] for line in job.logs().splitlines()]
    assert told == [1.0, 0.0, 1.0, 0.5]
    assert "from 0 to 1, not nan" in job.logs("stderr") and "from 0 to 1, not 'x'" in job.logs("stderr")


def test_a_result_that_names_a_file_is_no_path_to_it(work: ModuleType, write: Write) -> None:
    named = {"large_result_file": str(write("secret.json", "{}")), "bytes": 2}
    assert unhang.submit(work.echo, named).wait(60) == named


def test_times_and_texts_of_libraries_are_json(work: ModuleType) -> None:
    result = unhang.submit(work.times).wait(60)
    assert result.pop("long") == "ü" * 9_000_000
    assert result == {"days": ["2020-01-01"], "nanoseconds": "2020-01-01T00:00:00.000000001", "place": "caf\ufffd"}


def test_words_that_look_like_options_are_none(work: ModuleType) -> None:
    for call in (lambda: unhang.state.set("--help", 1), lambda: unhang.state.get("-h")):
        with pytest.raises(unhang.UnhangError, match="-h"):
            call()
    job = unhang.submit(work.add, 1, job_name="-x")
    assert job.status()["name"] == "-x"
    assert job.wait(float("inf")) == 3
    with pytest.raises(ValueError, match="number of seconds"):
        job.wait(float("nan"))


def test_waiting_takes_no_thread_of_the_loop(work: ModuleType) -> None:
    async def main() -> float:
        job = await unhang.submit_async(work.nap, 30.0)
        waiting = [asyncio.create_task(job.wait_async()) for _ in range(40)]
        await asyncio.sleep(0)
        begin = time.monotonic()
        await asyncio.to_thread(int)
        took = time.monotonic() - begin
        job.cancel()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(outcome, unhang.JobFailedError) for outcome in outcomes)
        return took

    assert asyncio.run(main()) < 25


def test_a_script_from_stdin_is_no_module(tmp_path: Path) -> None:
    script = "import unhang\ndef f(x: int) -> int: return x\ntry: unhang.submit(f, 1)\nexcept TypeError as error: print(error)\n"
    told = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert "move it to a module" in told.stdout, told


def test_half_a_character_is_the_replacement_character(work: ModuleType) -> None:
    assert unhang.submit(work.half).wait(60) == {"half \ufffd": "\ufffd"}


def test_a_job_submits_a_job_of_its_module(
    work: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", str(Path(unhang.__file__).parents[1]))
    (tmp_path / "script.py").write_text("import work, unhang\nprint(unhang.submit(work.outside).wait(90))")
    told = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, timeout=120)
    assert told.stdout == "42\n", told.stderr


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("exits", "results"),
        ("leaves", r"sys.exit\(3\)"),
        ("not_json", r"the result\['a'\]\[1\]\['b'\] is of the type object"),
        ("not_finite", r"the result\['rate'\] is nan"),
        ("whole", r"the result\['n'\]\[0\] is a whole number of more than 64 bits"),
        ("deep", "more than 100 levels"),
        ("twice", "two keys of the result are the same"),
        ("silent", "a Silent, whose text cannot be had"),
        ("no_memory", "MemoryError"),
        ("duration", r"the result\['a'\] is of the type numpy.ndarray"),
        ("long_float", r"the result\['a'\] is of the type numpy.longdouble"),
    ],
)
def test_a_job_without_a_result_says_why(work: ModuleType, name: str, why: str) -> None:
    with pytest.raises(unhang.JobFailedError, match=why):
        unhang.submit(getattr(work, name)).wait(60)


def test_forks_and_threads_do_not_keep_a_job(work: ModuleType) -> None:
    assert unhang.submit(work.forks).wait(60) == 1
    assert unhang.submit(work.threads).wait(60) == "done"


def test_a_result_of_100_mb_comes_back(work: ModuleType) -> None:
    assert len(unhang.submit(work.large).wait(120)) == 100_000_000


def test_a_cancelled_job_can_clean_up(work: ModuleType) -> None:
    job = unhang.submit(work.endless)
    with pytest.raises(TimeoutError):
        job.wait(2)
    deadline = time.monotonic() + 60
    while "begun" not in job.logs("stderr"):
        assert time.monotonic() < deadline, "the function has not begun"
    status = job.status()
    assert (status["progress"], status["progress_message"]) == (0.25, "a quarter")
    job.cancel()
    with pytest.raises(unhang.JobFailedError) as failure:
        job.wait(60)
    assert failure.value.status == "cancelled" and "cancelled: True" in job.logs("stderr")


def test_jobs_share_the_state(work: ModuleType) -> None:
    assert [unhang.submit(work.uses_state).wait(60) for _ in range(2)] == [1, 2]
    assert unhang.state.get("count") == 2 and unhang.state.get("nothing", "none") == "none"


def test_what_cannot_be_a_job_says_the_way_out(work: ModuleType) -> None:
    for function, way_out in [
        (work.LAMBDA, "with `def`"),
        (work.outer(), "top of its module"),
        (work.Kind().method, "top of a module"),
        (work.starred, "named arguments"),
        (work.bare, "has no type"),
        (work.generator, "is a generator"),
        (sorted, "named arguments"),
        (min, "has no signature"),
        (3, "not a function"),
    ]:
        with pytest.raises(TypeError, match=way_out):
            unhang.submit(function)
    with pytest.raises(TypeError, match="missing a required argument"):
        unhang.submit(work.add)
    for argument, message in [(object(), "the argument `a`"), ("x", "valid integer")]:
        with pytest.raises(TypeError, match=message):
            unhang.submit(work.add, argument)
    with pytest.raises(TypeError, match="job_timeout is 3"):
        unhang.submit(work.add, 1, job_timeout=3)  # type: ignore[arg-type]


def test_a_module_that_cannot_be_imported_fails_the_job(work: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("raise RuntimeError('no licence')")
    with pytest.raises(unhang.JobFailedError, match="no licence"):
        unhang.submit(work.add, 1).wait(60)


def test_a_job_imports_nothing_from_the_folder_of_a_project(
    work: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    for name in ("json", "unhang", "signal"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text("raise SystemExit('a file of the project was imported')")
    monkeypatch.chdir(project)
    # As a server that is started by the path of its script.
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert unhang.submit(work.add, 1).wait(60) == 3


def test_the_async_forms_do_the_same(work: ModuleType) -> None:
    async def main() -> tuple[object, dict[str, object]]:
        job = await unhang.submit_async(work.add, 1)
        return await job.wait_async(60), await job.status_async()

    result, status = asyncio.run(main())
    assert result == 3 and status["status"] == "completed"


def test_there_is_no_job_of_this_id() -> None:
    with pytest.raises(unhang.UnhangError, match="aaaaaaaaaaaa"):
        unhang.get("aaaaaaaaaaaa")
    for text in ("--help", "", "a b"):
        with pytest.raises(unhang.UnhangError, match="not the id of a job"):
            unhang.get(text)


def test_a_handle_stays_with_its_job(work: ModuleType) -> None:
    job = unhang.submit(work.add, 1)
    assert [unhang.get("last").id, unhang.get(job.id[:6]).id] == [job.id, job.id]
