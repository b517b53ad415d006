"""The errors of this package."""

from __future__ import annotations

from typing import Any


class UnhangError(Exception):
    """The base of all errors of this package."""


class JobRefusedError(UnhangError):
    """unhang has accepted no job. The text says why, and what to do."""


class JobFailedError(UnhangError):
    """A job has ended without a result.

    `status` is `failed`, `cancelled` or `lost`. `report` has everything that unhang knows of the end.
    """

    def __init__(self, message: str, status: str, report: dict[str, Any]) -> None:
        super().__init__(message)
        self.status = status
        self.report = report
