"""perf_analyzer, and genai-perf, which drives it: both stream over gRPC and export the same JSON.

perf_analyzer comes with tritonclient 2.51 (later wheels need a newer C library than Debian 12 has) and links
libb64 and the CUDA runtime, also without a GPU.
"""

from __future__ import annotations

import itertools
import json
import os
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from tools.loading.programs import Run
from tools.loading.work import LoadError, Seen, Target, Work
from tools.serving.checks import library_problem, missing_libraries

ANALYZER = Path(sysconfig.get_path("scripts")) / "perf_analyzer"
CUDA_RUNTIME = Path(sysconfig.get_path("purelib")) / "nvidia" / "cuda_runtime" / "lib"
EXPORT = "export.json"
NS = 1e-9


@dataclass(frozen=True, slots=True)
class PerfAnalyzer:
    run: Run
    program: Path = ANALYZER

    def load(self, target: Target, work: Work, folder: Path) -> list[Seen]:
        if not self.program.exists():
            raise LoadError(f"{self.program} is missing: make setup installs tritonclient 2.51, which has it")
        must_load(self.program)
        rows = [{"text_input": [text], **_options(work)} for text in _taken(work)]
        (folder / "input.json").write_text(json.dumps({"data": rows}))
        (folder / EXPORT).unlink(missing_ok=True)
        command = [str(self.program), "-m", target.door, "-u", target.grpc, "-i", "grpc"]
        command += ["--streaming", "--async", "--input-data", "input.json", "--profile-export-file", EXPORT]
        command += ["--concurrency-range", str(work.clients), "--request-count", str(work.requests)]
        self.run(command, libraries(), folder)
        return exported((folder / EXPORT).read_text())


@dataclass(frozen=True, slots=True)
class GenaiPerf:
    """`program` of its own environment; `tokenizer` is a local directory: nothing is fetched from a hub."""

    run: Run
    program: Path
    tokenizer: Path

    def load(self, target: Target, work: Work, folder: Path) -> list[Seen]:
        must_load(ANALYZER)
        lines = "".join(json.dumps({"text": text}) + "\n" for text in _taken(work))
        (folder / "input.jsonl").write_text(lines)
        command = [str(self.program), "profile", "-m", target.door, "--backend", "vllm", "--streaming"]
        command += ["--url", target.grpc, "--tokenizer", str(self.tokenizer), "--input-file", "input.jsonl"]
        command += ["--concurrency", str(work.clients), "--request-count", str(work.requests)]
        command += ["--warmup-request-count", "0", "--artifact-dir", "artifacts"]
        command += ["--extra-inputs", f"max_tokens:{work.max_tokens}", "--profile-export-file", EXPORT]
        # Its own dependency of that name is an empty shell.
        path = os.pathsep.join([str(ANALYZER.parent), os.environ.get("PATH", os.defpath)])
        self.run(command, {**libraries(), "PATH": path}, folder)
        return exported(next((folder / "artifacts").rglob(EXPORT)).read_text())


def libraries() -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(CUDA_RUNTIME)}


def must_load(analyzer: Path) -> None:
    """LoadError, with the cure, where a shared library of perf_analyzer is not on this machine."""
    missing = missing_libraries(analyzer, {**os.environ, **libraries()})
    if missing:
        raise LoadError(f"perf_analyzer cannot start: {library_problem(missing[0])}")


def exported(text: str) -> list[Seen]:
    """The requests of a profile export, whichever of the two wrote it."""
    experiments = json.loads(text)["experiments"]
    return [_seen(request) for one in experiments for request in one["requests"]]


def _seen(request: dict[str, object]) -> Seen:
    stamps = [NS * int(stamp) for stamp in request.get("response_timestamps") or ()]  # type: ignore[attr-defined]
    asked_at = NS * int(str(request["timestamp"]))
    if not stamps or not request.get("success", True):
        return Seen(asked_at, None, stamps[-1] if stamps else asked_at, "perf_analyzer counts it as failed")
    return Seen(asked_at, stamps[0], stamps[-1])


def _taken(work: Work) -> list[str]:
    return list(itertools.islice(itertools.cycle(work.prompts), min(work.requests, len(work.prompts))))


def _options(work: Work) -> dict[str, list[object]]:
    return {"max_tokens": [work.max_tokens], "stream": [True]}
