"""The program that the package needs: where it is found, and what is said if it is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import unhang
from unhang import _binary


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    _binary.binary.cache_clear()
    yield
    _binary.binary.cache_clear()


def program(path: Path, version: str) -> str:
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return str(path)


def test_without_a_program_the_way_to_one_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("UNHANG_BINARY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(unhang.BinaryNotFoundError, match="pip install"):
        unhang.binary()
    monkeypatch.setenv("UNHANG_BINARY", str(tmp_path / "none"))
    with pytest.raises(unhang.BinaryNotFoundError, match="UNHANG_BINARY"):
        unhang.binary()


def test_another_version_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UNHANG_BINARY", program(tmp_path / "unhang", "unhang 9.8.7"))
    with pytest.raises(unhang.VersionMismatchError, match=r"pip install unhang==9\.8\.7"):
        unhang.binary()
    _binary.binary.cache_clear()
    monkeypatch.setenv("UNHANG_BINARY", program(tmp_path / "other", "something else entirely"))
    with pytest.raises(unhang.BinaryNotFoundError, match="is not unhang"):
        unhang.binary()


def test_the_guard_stands_in_front_of_a_command() -> None:
    parameters = unhang.guard("npx", "-y", "server", name="files", env={"A": "b"})
    assert parameters.command == unhang.binary()
    assert parameters.args == ["wrap", "--name", "files", "--", "npx", "-y", "server"]
    assert parameters.env == {"A": "b"}
