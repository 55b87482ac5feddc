"""The commands that make an engine, as data. Runs nothing.

Invariant: every flag that the contract depends on is spelled out, so that a changed default of a release
changes no engine.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from python_backend.roles.place import ENGINE_DIR
from tools.engines.hugging_face import HuggingFaceModel

EXAMPLES = Path("/app/examples")
"""Where Triton's TensorRT-LLM containers keep the converters."""
TAP_FILE = Path(__file__).resolve().parent.parent / "trtllm_tap.py"


@dataclass(frozen=True, slots=True)
class Limits:
    """What is fixed when an engine is built. 10,240 tokens hold prompts of 8,192 and answers of 2,048."""

    batch_max: int = 64
    length_max: int = 10240
    batch_tokens_max: int = 8192
    batch_tokens_usual: int = 64
    tokens_per_block: int = 32


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """One engine to be built."""

    model: HuggingFaceModel
    version_dir: Path
    """`<repository>/<model>/1`."""
    checkpoint: Path
    ranks: int = 1
    dtype: str = "bfloat16"
    limits: Limits = Limits()
    is_tapped: bool = False
    examples: Path = EXAMPLES
    extra: tuple[str, ...] = ()
    """Further flags of trtllm-build, checked by `tools.engines.refusals`."""

    @property
    def engine(self) -> Path:
        return self.version_dir / ENGINE_DIR


def commands(plan: EnginePlan) -> tuple[tuple[str, ...], ...]:
    """Hugging Face directory -> checkpoint -> engine."""
    return conversion(plan), build(plan)


def conversion(plan: EnginePlan) -> tuple[str, ...]:
    ranks = ("--tp_size", str(plan.ranks)) if plan.ranks > 1 else ()
    return (
        *("python3", str(plan.examples / plan.model.converter)),
        *("--model_dir", str(plan.model.folder), "--output_dir", str(plan.checkpoint)),
        *("--dtype", plan.dtype, *ranks),
    )


def build(plan: EnginePlan) -> tuple[str, ...]:
    limits = plan.limits
    return (
        *("trtllm-build", "--checkpoint_dir", str(plan.checkpoint), "--output_dir", str(plan.engine)),
        *("--gpt_attention_plugin", plan.dtype, "--gemm_plugin", plan.dtype),
        *(("--nccl_plugin", "auto", "--workers", str(plan.ranks)) if plan.ranks > 1 else ()),
        *("--kv_cache_type", "paged", "--remove_input_padding", "enable"),
        *("--context_fmha", "enable", "--use_paged_context_fmha", "enable"),
        *("--tokens_per_block", str(limits.tokens_per_block), "--max_beam_width", "1"),
        *("--max_batch_size", str(limits.batch_max)),
        *("--max_input_len", str(limits.length_max), "--max_seq_len", str(limits.length_max)),
        *("--max_num_tokens", str(limits.batch_tokens_max)),
        *("--opt_num_tokens", str(limits.batch_tokens_usual), "--logits_dtype", "float32"),
        *(_tap(plan) if plan.is_tapped else ()),
        *plan.extra,
    )


def _tap(plan: EnginePlan) -> tuple[str, ...]:
    return "--model_cls_file", str(TAP_FILE), "--model_cls_name", plan.model.tap


def shell_text(command: tuple[str, ...]) -> str:
    """One option a line, to paste."""
    lines = [shlex.quote(command[0])]
    for word in command[1:]:
        if word.startswith("--"):
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return " \\\n".join(lines)
