"""What the system says of a process that a test started, or that one of its children did."""

from __future__ import annotations

from pathlib import Path


def is_running(pid: int) -> bool:
    """False also for one that has ended but was not yet collected by the system's first process."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
