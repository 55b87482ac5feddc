"""aiperf, the successor of genai-perf: HTTP only, so it streams from Triton's generate endpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tools.loading.programs import Run
from tools.loading.work import Seen, Target, Work

TEMPLATE = '{"text_input": {{ text|tojson }}, "max_tokens": %d, "stream": {{ stream|tojson }}}'
"""A file, because aiperf splits an inline template at its commas."""
NS = 1e-9
MS = 1e-3


@dataclass(frozen=True, slots=True)
class Aiperf:
    """`program` of its own environment; `tokenizer` is a local directory."""

    run: Run
    program: Path
    tokenizer: Path

    def load(self, target: Target, work: Work, folder: Path) -> list[Seen]:
        lines = "".join(json.dumps({"text": text}) + "\n" for text in work.prompts)
        (folder / "input.jsonl").write_text(lines)
        template = folder / "payload.j2"
        template.write_text(TEMPLATE % work.max_tokens)
        command = [str(self.program), "profile", "-m", target.door, "--endpoint-type", "template"]
        command += ["--endpoint", f"/v2/models/{target.door}/generate_stream", "--streaming"]
        command += ["--url", f"http://{target.http}", "--tokenizer", str(self.tokenizer), "--ui", "none"]
        command += ["--input-file", "input.jsonl", "--custom-dataset-type", "single_turn"]
        command += ["--concurrency", str(work.clients), "--request-count", str(work.requests)]
        command += ["--extra-inputs", f"payload_template:{template}"]
        command += ["--extra-inputs", "response_field:text_output", "--artifact-dir", "artifacts"]
        self.run(command, {}, folder)
        return exported((folder / "artifacts" / "profile_export.jsonl").read_text())


def exported(text: str) -> list[Seen]:
    """One JSON line per request."""
    return [_seen(json.loads(line)) for line in text.splitlines() if line.strip()]


def _seen(record: dict[str, dict[str, object]]) -> Seen:
    times, metrics = record["metadata"], record.get("metrics") or {}
    asked_at, ended_at = (NS * int(str(times[name])) for name in ("request_start_ns", "request_end_ns"))
    first = metrics.get("time_to_first_token")
    if not isinstance(first, dict) or record.get("error"):
        return Seen(asked_at, None, ended_at, str(record.get("error") or "no first token"))
    return Seen(asked_at, asked_at + MS * float(first["value"]), ended_at)
