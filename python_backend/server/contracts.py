"""The tensors of every door, once: config.pbtxt is written from these tables, requests are read by them.

Pure data. Nothing here imports Triton, so that `tools.make_repository` can use it anywhere.
Names and types follow Triton's vLLM backend (text door) and TensorRT-LLM's inflight_batcher_llm (ensemble,
router, subservers); what is not in a table is refused by Triton itself, by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["STRING", "BOOL", "INT32", "INT64", "UINT32", "UINT64", "FP32"]
Value = str | bool | int | float | tuple[str, ...] | tuple[int, ...]
"""What one input means to us: a scalar for dims [1], a tuple for dims [-1]."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    name: str
    kind: Kind
    dims: tuple[int, ...] = (1,)
    is_optional: bool = True

    @property
    def is_list(self) -> bool:
        return self.dims != (1,)


@dataclass(frozen=True, slots=True)
class Contract:
    """One Triton model's tensors. `batch_max` 0 = no batch dimension; 1 = one row (TensorRT-LLM clients)."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batch_max: int = 0
    parameters: frozenset[str] = field(default_factory=frozenset)
    """Inputs that may also come as request parameters or inside `sampling_parameters`."""

    def input(self, name: str) -> TensorSpec | None:
        return next((spec for spec in self.inputs if spec.name == name), None)


def _all(kind: Kind, *names: str, dims: tuple[int, ...] = (1,)) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, kind, dims) for name in names)


def _required(name: str, kind: Kind, dims: tuple[int, ...] = (1,)) -> tuple[TensorSpec, ...]:
    return (TensorSpec(name, kind, dims, is_optional=False),)


_ROUTING_IN = _all("STRING", "routing_algorithm", "routing_config")
_RETURNS = _all(
    "BOOL",
    "exclude_input_in_output",
    "return_finish_reason",
    "return_num_input_tokens",
    "return_num_output_tokens",
    "return_routing",
    "return_seed",
)
_ROUTING_OUT = (
    *_all("INT32", "token_source", "token_chars", dims=(-1,)),
    *_all("INT32", "num_switches", "num_discarded_tokens"),
)
_ENDS = (*_all("STRING", "finish_reason", "stop_reason", dims=(-1,)), *_all("UINT64", "seed_used"))

_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_LEAST = ("min_tokens", "min_length")

SAMPLING = frozenset(
    (
        *("max_tokens", "temperature", "top_k", "top_p", "seed", "stop", "ignore_eos"),
        *("min_p", "logit_bias", "bad_words", "logprobs", *_PENALTIES, *_LEAST),
    )
)

TEXT = Contract(
    inputs=(
        *_all("STRING", "text_input", "messages", "tools", "sampling_parameters", "logit_bias"),
        *_all("BOOL", "stream", "ignore_eos", "return_cumulative_logprob", "return_logprobs"),
        *_RETURNS,
        *_all("INT32", "max_tokens", "top_k", "logprobs", *_LEAST),
        *_all("FP32", "temperature", "top_p", "min_p", *_PENALTIES),
        *_all("UINT64", "seed"),
        *_all("STRING", "stop", "bad_words", dims=(-1,)),
        *_ROUTING_IN,
    ),
    outputs=(
        *_all("STRING", "text_output", dims=(-1,)),
        *_ENDS,
        *_all("UINT32", "num_input_tokens"),
        *_all("UINT32", "num_output_tokens", dims=(-1,)),
        *_all("FP32", "cumulative_logprob", dims=(-1,)),
        *_all("STRING", "logprobs", dims=(-1,)),
        *_ROUTING_OUT,
    ),
    parameters=SAMPLING,
)
"""`token_router`, as Triton's vLLM backend: https://github.com/triton-inference-server/vllm_backend."""

_LOGITS = ("return_context_logits", "return_generation_logits", "return_perf_metrics")
_LOGPROBS_OUT = (
    *_all("FP32", "output_log_probs", "top_log_probs", dims=(-1, -1)),
    *_all("INT32", "top_log_prob_ids", dims=(-1, -1)),
    *_all("FP32", "cum_log_probs", dims=(-1,)),
)
"""The first and the last are TensorRT-LLM's, [beams, tokens] and [beams]; the others are [tokens, top]."""

ENSEMBLE = Contract(
    inputs=(
        *_required("text_input", "STRING"),
        *_required("max_tokens", "INT32"),
        *_all("BOOL", "stream", "ignore_eos"),
        *_RETURNS,
        *_all("STRING", "stop_words", "bad_words", dims=(-1,)),
        *_all("STRING", "logit_bias"),
        *_all("INT32", "top_k", "logprobs", "end_id", "pad_id", *_LEAST),
        *_all("INT32", "beam_width", "num_return_sequences"),
        *_all("FP32", "temperature", "top_p", "min_p", "length_penalty", *_PENALTIES),
        *_all("UINT64", "seed"),
        *_all("BOOL", "return_log_probs", *_LOGITS),
        *_ROUTING_IN,
    ),
    outputs=(
        *_all("STRING", "text_output", dims=(-1,)),
        *_ENDS,
        *_all("STRING", "error_message", dims=(-1,)),
        *_all("INT32", "num_input_tokens", "num_output_tokens"),
        *_LOGPROBS_OUT,
        *_ROUTING_OUT,
    ),
    batch_max=1,
)
"""`ensemble`, as TensorRT-LLM's: https://github.com/triton-inference-server/tensorrtllm_backend."""

PREPROCESSING = Contract(
    inputs=(
        *_required("QUERY", "STRING"),
        *_required("REQUEST_OUTPUT_LEN", "INT32"),
        *_all("INT32", "END_ID", "PAD_ID"),
    ),
    outputs=(
        *_all("INT32", "INPUT_ID", dims=(-1,)),
        *_all("INT32", "REQUEST_INPUT_LEN", "REQUEST_OUTPUT_LEN"),
        *_all("UINT64", "REQUEST_UID"),
    ),
    batch_max=1,
)

_TOKENS_IN = (
    *_required("input_ids", "INT32", (-1,)),
    *_required("request_output_len", "INT32"),
    *_all("INT32", "input_lengths", "runtime_top_k", "beam_width", "num_return_sequences", *_LEAST),
    *_all("INT32", "logprobs"),
    *_all("INT32", "bad_words_list", dims=(2, -1)),
    *_all("STRING", "logit_bias"),
    *_all("BOOL", "streaming", "stop"),
    *_all("FP32", "temperature", "runtime_top_p", "min_p", "len_penalty", *_PENALTIES),
    *_all("UINT64", "seed"),
    *_all("BOOL", "ignore_eos", "return_log_probs", *_LOGITS),
)
_TOKENS_OUT = (
    *_all("INT32", "output_ids", dims=(-1, -1)),
    *_all("INT32", "sequence_length", dims=(-1,)),
    *_LOGPROBS_OUT,
)

TOKENS = Contract(
    inputs=_TOKENS_IN,
    outputs=(*_TOKENS_OUT, *_all("STRING", "finish_reason", dims=(-1,))),
    batch_max=1,
)
"""A subserver alone: token ids in and out, as the model `tensorrt_llm`."""

ROUTER = Contract(
    inputs=(
        *_TOKENS_IN,
        *_all("UINT64", "REQUEST_UID"),
        *_all("STRING", "stop_words", "bad_words", dims=(-1,)),
        *_RETURNS,
        *_ROUTING_IN,
    ),
    outputs=(
        *_TOKENS_OUT,
        *_all("STRING", "text"),
        *_all("UINT64", "request_uid"),
        *_ENDS,
        *_all("STRING", "error_message", dims=(-1,)),
        *_all("INT32", "num_input_tokens", "num_output_tokens"),
        *_ROUTING_OUT,
    ),
    batch_max=1,
)
"""The ensemble's middle step. It echoes `request_uid` because a step after a decoupled one may not mix
tensors from before it."""

POSTPROCESSING = Contract(
    inputs=(*_required("TEXT", "STRING"), *_required("REQUEST_UID", "UINT64")),
    outputs=(*_all("STRING", "OUTPUT", dims=(-1,)),),
    batch_max=64,
)

INERT: dict[str, tuple[Value, ...]] = {
    "beam_width": (0, 1),
    "best_of": (0, 1),
    "length_penalty": (0.0, 1.0),
    "len_penalty": (0.0, 1.0),
    "n": (0, 1),
    "num_return_sequences": (0, 1),
    **dict.fromkeys(_LOGITS, (False,)),
}
"""Options that clients of these doors send without meaning anything by it: accepted at these values,
refused by name at any other."""

TRITON_PARAMETERS = frozenset(("id", "timeout", "priority", "sequence_id", "sequence_start", "sequence_end"))
"""What Triton's HTTP `generate` leaves among a request's parameters (seen on 2.51)."""
