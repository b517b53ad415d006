"""Slow functions of MCP servers as durable jobs.

A server decorates a function, and a call of the tool answers at once with the id of a job. The function runs in a process of its own,
under the supervisor of the program `unhang`, which outlives the server::

    server = MCPServer("digester")
    jobs = unhang.jobs(server)

    @jobs.job(timeout="30m")
    def simulate(cod: float) -> dict: ...

Importing this package imports no framework and starts no process.
"""

from unhang import state
from unhang._binary import BinaryNotFoundError, VersionMismatchError, binary
from unhang._errors import JobFailedError, JobRefusedError, UnhangError
from unhang._guard import guard
from unhang._handle import Job, get, list_jobs, submit, submit_async
from unhang._inside import Cancelled, is_cancelled, job_dir, log, progress
from unhang._jobs import Jobs, jobs
from unhang._version import __version__

__all__ = [
    "BinaryNotFoundError",
    "Cancelled",
    "Job",
    "JobFailedError",
    "JobRefusedError",
    "Jobs",
    "UnhangError",
    "VersionMismatchError",
    "__version__",
    "binary",
    "get",
    "guard",
    "is_cancelled",
    "job_dir",
    "jobs",
    "list_jobs",
    "log",
    "progress",
    "state",
    "submit",
    "submit_async",
]
