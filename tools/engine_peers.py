"""Other engines for `tools.bench_engine`, each in a Python environment of its own.

The parent writes a small program for the peer's interpreter and reads one line of JSON back: the
milliseconds of every decode step. Nothing of this project is imported over there. A peer that is not
installed, or does not run, is absent with the reason; it never fails the others' figures.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from tools.peer_environments import PeerEnvironmentError, environment_python

TIMEOUT_S = 900.0
ONNX_BUILDER = ("-m", "onnxruntime_genai.models.builder", "-p", "int4", "-e", "cpu")


class PeerAbsent(Exception):
    """The peer cannot be measured here; the message says why."""


@dataclass(frozen=True, slots=True)
class PeerJob:
    """`model` is what the peer loads: a Hugging Face directory, a GGUF file, an ONNX directory."""

    model: str
    batch: int
    context: int
    repeats: int
    threads: int


@dataclass(frozen=True, slots=True)
class Peer:
    """`dtype` of its weights; `program` defines `times_ms(job)` out of what `module` offers."""

    module: str
    dtype: str
    program: str


VLLM = """
def times_ms(job):
    import os
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND=f"0-{job['threads'] - 1}",
                      HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1")
    from vllm import LLM, SamplingParams
    engine = LLM(job["model"], dtype="float32", enforce_eager=True, enable_prefix_caching=True,
                 max_model_len=job["context"] + 256, max_num_seqs=16, block_size=32)
    prompts = [{"prompt_token_ids": [(row + k) % 7 + 3 for k in range(job["context"])]}
               for row in range(job["batch"])]
    def seconds(tokens):
        sampling = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        started = time.perf_counter()
        engine.generate(prompts, sampling, use_tqdm=False)
        return time.perf_counter() - started
    seconds(1)
    short, long = 2, 2 + max(job["repeats"], 8)
    return [1e3 * (seconds(long) - seconds(short)) / (long - short) for _ in range(3)]
"""

ONNX = """
def times_ms(job):
    import onnxruntime_genai as og
    import numpy as np
    config = og.Config(job["model"])
    model = og.Model(config)
    params = og.GeneratorParams(model)
    length = job["context"] + job["repeats"] + 8
    params.set_search_options(max_length=length, batch_size=job["batch"], do_sample=False, min_length=length)
    generator = og.Generator(model, params)
    prompt = [[(row + k) % 7 + 3 for k in range(job["context"])] for row in range(job["batch"])]
    generator.append_tokens(np.array(prompt, dtype=np.int32))
    times = []
    for _ in range(job["repeats"] + 3):
        started = time.perf_counter()
        generator.generate_next_token()
        times.append(1e3 * (time.perf_counter() - started))
    return times[3:]
"""

LLAMA = """
def times_ms(job):
    import threading
    import xllamacpp as xl
    params = xl.CommonParams()
    params.model.path = job["model"]
    params.n_parallel = job["batch"]
    params.n_ctx = job["batch"] * (job["context"] + 256)
    params.kv_unified = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = job["threads"]
    params.port = 0
    server = xl.Server(params)
    def ask(row, tokens):
        prompt = [(row + k) % 7 + 3 for k in range(job["context"])]
        server.handle_completions({"prompt": prompt, "n_predict": tokens, "cache_prompt": True,
                                   "id_slot": row, "ignore_eos": True, "temperature": 0})
    def seconds(tokens):
        rows = [threading.Thread(target=ask, args=(row, tokens)) for row in range(job["batch"])]
        started = time.perf_counter()
        for row in rows: row.start()
        for row in rows: row.join()
        return time.perf_counter() - started
    seconds(1)
    short, long = 2, 2 + max(job["repeats"], 8)
    return [1e3 * (seconds(long) - seconds(short)) / (long - short) for _ in range(3)]
"""

PEERS = MappingProxyType(
    {
        "vllm": Peer("vllm", "float32", VLLM),
        "onnx_int4": Peer("onnxruntime_genai", "int4", ONNX),
        "llama_cpp": Peer("xllamacpp", "int4", LLAMA),
    }
)

FRAME = """
import json, sys, time
{program}
if __name__ == "__main__":
    print("TIMES", json.dumps(times_ms(json.loads(sys.argv[1]))))
"""


@dataclass(frozen=True, slots=True)
class Source:
    """The one model in the forms that peers read; `folder` keeps what is made of it."""

    model_dir: Path
    gguf: Path | None
    folder: Path


def installed_peer(name: str, source: Source, tell: Callable[[str], None]) -> tuple[str, str]:
    """Interpreter and model of peer `name`, both made now where they are missing; PeerAbsent says why not."""
    try:
        python = str(environment_python(name, tell))
    except PeerEnvironmentError as error:
        raise PeerAbsent(str(error)) from error
    if name == "llama_cpp":
        if source.gguf is None:
            raise PeerAbsent("llama_cpp reads a GGUF file: name it with --gguf")
        return python, str(source.gguf)
    return python, str(_onnx_model(python, source, tell) if name == "onnx_int4" else source.model_dir)


def _onnx_model(python: str, source: Source, tell: Callable[[str], None]) -> Path:
    """The model with int4 weights as onnxruntime-genai wants it."""
    built = source.folder / f"{source.model_dir.resolve().name}-onnx-int4"
    if not (built / "genai_config.json").exists():
        tell(f"converting {source.model_dir} to {built}")
        run = _ran(python, [*ONNX_BUILDER, "-i", str(source.model_dir), "-o", str(built)])
        if run.returncode:
            raise PeerAbsent(f"onnxruntime_genai.models.builder: {_last_line(run.stderr)}")
    return built


def peer_times_ms(name: str, python: str, job: PeerJob) -> list[float]:
    """Milliseconds per decode step of a batch; PeerAbsent where it is not installed or fails."""
    peer = PEERS[name]
    if _ran(python, ["-c", f"import {peer.module}"]).returncode:
        raise PeerAbsent(f"{peer.module} cannot be imported by {python}")
    program = FRAME.format(program=peer.program)
    run = _ran(python, ["-c", program, json.dumps(asdict(job))])
    lines = [line for line in run.stdout.splitlines() if line.startswith("TIMES ")]
    if run.returncode or not lines:
        raise PeerAbsent(f"{peer.module}: {_last_line(run.stderr)}")
    times_ms: list[float] = json.loads(lines[-1].removeprefix("TIMES "))
    return times_ms


def _ran(python: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run([python, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerAbsent(f"{python}: {error}") from error


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else "no message"
