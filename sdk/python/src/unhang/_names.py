"""The names that a server and the process of its job share."""

ARGUMENTS = "input.json"
"""The file in the job's folder with the arguments."""

RESULTS = "results.json"
"""The file in the job's folder with the result."""

LARGE_RESULT = "large_result.json"
"""The file in the job's folder with a result that is too large for an answer. `results.json` then names it."""

LARGE_RESULT_KEY = "large_result_file"
"""The key in `results.json` with the path of that file."""

LARGEST_RESULT = 16 << 20
"""The size in bytes of the largest result that is no large one."""

ERROR = "error.json"
"""The file in the job's folder with the exception."""
