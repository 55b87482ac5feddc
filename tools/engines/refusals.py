"""Which flags of a build break the contract with our runner, and what to give instead.

The rules about an engine's config.json are the runner's own (`trtllm_runner.contract`); here they are asked
before hours of building instead of after. Decides, runs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from python_backend.runner.trtllm_runner.contract import CONFIG_RULES, LAST_ONLY, PAGED, ConfigRule
from tools.engines.hugging_face import HuggingFaceModel
from tools.engines.plan import EnginePlan, Limits

WORDS = {"enable": "true", "disable": "false"}
RULES = {rule.path.rpartition(".")[2]: rule for rule in CONFIG_RULES}
"""By the name of the flag, which is the last part of the path."""


@dataclass(frozen=True, slots=True)
class Forbidden:
    """A flag that is never right, whatever its value."""

    flag: str
    cure: str


FORBIDDEN = (
    Forbidden("gather_all_token_logits", LAST_ONLY),
    Forbidden("gather_generation_logits", "leave it out: only the executor reads it"),
    Forbidden("paged_kv_cache", PAGED),
    Forbidden("fast_build", "leave it out: the engine would lack its weights"),
    Forbidden("speculative_decoding_mode", "leave it out: drafts have no rows in our batches"),
    Forbidden("max_draft_len", "leave it out: drafts have no rows in our batches"),
    Forbidden("lora_plugin", "leave it out, or merge the adapter into the weights"),
    Forbidden("lora_dir", "leave it out, or merge the adapter into the weights"),
    Forbidden("max_prompt_embedding_table_size", "leave it out: there are no prompt tables"),
    Forbidden("weight_streaming", "leave it out: weights stay on the GPU"),
    Forbidden("checkpoint_dir", "python -m tools.build_engine --checkpoint"),
    Forbidden("output_dir", "python -m tools.build_engine --repository and --name"),
    Forbidden("tokens_per_block", "python -m tools.build_engine --tokens-per-block"),
    Forbidden("max_batch_size", "python -m tools.build_engine --batch-max"),
    Forbidden("max_seq_len", "python -m tools.build_engine --length-max"),
    Forbidden("max_input_len", "python -m tools.build_engine --length-max"),
    Forbidden("max_num_tokens", "python -m tools.build_engine --batch-tokens-max"),
    Forbidden("opt_num_tokens", "python -m tools.build_engine --batch-tokens-usual"),
    Forbidden("model_cls_file", "python -m tools.build_engine --tap"),
    Forbidden("model_cls_name", "python -m tools.build_engine --tap"),
    Forbidden("tp_size", "python -m tools.build_engine --tp"),
)


def refusals(plan: EnginePlan) -> list[str]:
    """Everything about the plan that the runner could not serve, each with its cure."""
    return [*flag_refusals(plan.extra), *limit_refusals(plan.limits, plan.model)]


def flag_refusals(extra: Sequence[str]) -> Iterator[str]:
    """About further flags of trtllm-build."""
    forbidden = {item.flag: item for item in FORBIDDEN}
    for name, value in flags(extra):
        if name in forbidden:
            yield f"--{name} breaks the contract: {forbidden[name].cure}"
        elif name in RULES and not _is_allowed(RULES[name], value):
            yield f"--{name} {value} breaks the contract: {RULES[name].flag}"


def flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Name and value of each flag; a flag without a value counts as enabled."""
    name, values = "", list[str]()
    for word in [*words, "--"]:
        if not word.startswith("--"):
            values.append(word)
            continue
        if name:
            yield name, " ".join(values) or "enable"
        name, _, value = word[2:].partition("=")
        values = [value] if value else []


def _is_allowed(rule: ConfigRule, value: str) -> bool:
    return WORDS.get(value.lower(), value.lower()) in rule.allowed


def limit_refusals(limits: Limits, model: HuggingFaceModel) -> Iterator[str]:
    """About sizes that no engine, or no model, could have."""
    if limits.length_max > model.length_max:
        yield (
            f"--length-max {limits.length_max} is beyond the model's max_position_embeddings "
            f"{model.length_max}: the answers there would be noise"
        )
    if limits.batch_tokens_max < limits.batch_max:
        yield (
            f"--batch-tokens-max {limits.batch_tokens_max} is below --batch-max {limits.batch_max}: "
            "a full batch would not fit into a step"
        )
    if limits.tokens_per_block < 8 or limits.tokens_per_block & (limits.tokens_per_block - 1):
        yield (
            f"--tokens-per-block {limits.tokens_per_block}: the kernels want a power of two from 8 on; "
            "32 is usual"
        )
