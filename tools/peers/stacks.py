"""What a Python process spends its time on, from the stacks that a sampling profiler has counted.

Pure. A stack counts for the innermost frame that a rule knows; what no rule knows is told as the rest.
A compiled step is one frame, so attention is no part of its own. py-spy's `--native` would tell it apart,
but holds the process while it reads torch's symbols: Triton takes it for dead.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

REST = "the rest"
RULES = (
    ("prefix look-up, blocks", ("router_backend/kvcache/",)),
    ("sampling, signals", ("torch_runner/sampler.py", "torch_runner/step_numbers.py", "runner/heads/")),
    ("forward", ("torch_runner/", "python_backend/runner/")),
    ("routing policy", ("router_backend/policies/", "loops/stopwatch.py")),
    ("figures, metrics", ("server/metrics.py", "_figures.py", "loops/step_tally.py", "roles/samples.py")),
    (
        "hand-offs, messages",
        ("router_backend/handoff/", "python_backend/transport/", "loops/handoff_loop.py"),
    ),
    ("schedule and commit", ("router_backend/scheduler/", "router_backend/core/")),
    ("request in, tokens out", ("python_backend/server/", "loops/client_loop.py", "loops/token_request.py")),
    ("loops, waking up", ("python_backend/loops/", "python_backend/roles/", "python_backend/model.py")),
)
"""(part, pieces of a file's path), the first that fits."""
PARTS = (*(part for part, _ in RULES), REST)


def seconds(lines: Iterable[str], cpu_s: Mapping[int, float]) -> dict[str, float]:
    """CPU seconds by part: each thread's own, `cpu_s` by its id, divided as its samples are.

    `lines` are py-spy's raw form with threads, `thread (ID): name;frame;frame ... count`. Threads without
    samples, the server's own in C++ among them, are the rest.
    """
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for line in filter(str.strip, lines):
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        counts[_thread(thread)][_part(frames)] += int(count)
    found = dict.fromkeys(PARTS, 0.0)
    for thread_id, spent_s in cpu_s.items():
        parts = counts.get(thread_id) or Counter({REST: 1})
        for part, number in parts.items():
            found[part] += spent_s * number / parts.total()
    return found


def _thread(frame: str) -> int:
    found = re.match(r"thread \((\d+)\)", frame)
    return int(found[1]) if found else -1


def _part(frames: list[str]) -> str:
    for frame in reversed(frames):
        for part, pieces in RULES:
            if any(piece in frame for piece in pieces):
                return part
    return REST
