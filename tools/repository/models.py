"""The Triton models of a deployment, as data.

Two doors over the same subservers. The tensors are those of `python_backend.server.contracts`; nothing is
repeated here but which of them an ensemble's step hands to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from python_backend.config import Deployment
from python_backend.server.contracts import (
    ENSEMBLE,
    POSTPROCESSING,
    PREPROCESSING,
    ROUTER,
    TEXT,
    TOKENS,
    Contract,
)
from router_backend.core.errors import ConfigError

TENSOR_OF_INPUT = {
    "stream": "streaming",
    "top_k": "runtime_top_k",
    "top_p": "runtime_top_p",
    "length_penalty": "len_penalty",
}
"""Ensemble inputs that the router knows under TensorRT-LLM's inner names."""
BY_PREPROCESSING = {
    "text_input": "QUERY",
    "max_tokens": "REQUEST_OUTPUT_LEN",
    "end_id": "END_ID",
    "pad_id": "PAD_ID",
}
"""Ensemble inputs that stop at preprocessing."""
BETWEEN = {
    "INPUT_ID": "input_ids",
    "REQUEST_INPUT_LEN": "input_lengths",
    "REQUEST_OUTPUT_LEN": "request_output_len",
    "REQUEST_UID": "REQUEST_UID",
}
"""What preprocessing hands to the router."""


@dataclass(frozen=True, slots=True)
class Step:
    """One model of an ensemble; maps go from the model's tensor to the ensemble's."""

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    name: str
    contract: Contract
    parameters: Mapping[str, str] = field(default_factory=dict)
    is_decoupled: bool = False
    steps: tuple[Step, ...] = ()
    """Not empty for an ensemble, which has no backend and no instances."""


def configs(deployment: Deployment) -> tuple[ModelConfig, ...]:
    """ConfigError when a model has a name that the repository needs for itself."""
    doors = (
        ModelConfig("token_router", TEXT, text_door(deployment), is_decoupled=True),
        ModelConfig("ensemble", ENSEMBLE, steps=ensemble_steps()),
        ModelConfig("preprocessing", PREPROCESSING, {"role": "preprocessing"}),
        ModelConfig("router", ROUTER, {"role": "front", "door": "ensemble"}, is_decoupled=True),
        ModelConfig("postprocessing", POSTPROCESSING, {"role": "postprocessing", "router": "router"}),
    )
    taken = {door.name for door in doors} & set(deployment.subservers)
    if taken:
        raise ConfigError(f"models: the name {sorted(taken)[0]!r} belongs to a door; choose another")
    subservers = (
        ModelConfig(name, TOKENS, {"role": "subserver"}, is_decoupled=True) for name in deployment.subservers
    )
    return (*doors, *subservers)


def text_door(deployment: Deployment) -> dict[str, str]:
    """The role, and what a client may want to know of the deployment, which it can read in this model's
    configuration only."""
    policy, bounds = deployment.policy, deployment.front.cutoff_range
    cutoff = policy.params.get("cutoff")
    told = {
        "models": ",".join(deployment.names),
        "replicas": "" if deployment.replicas.is_single else ";".join(replicas_by_model(deployment)),
        "policy": policy.name,
        "cutoff": "" if cutoff is None else f"{cutoff}",
        "cutoff_range": "" if bounds is None else f"{bounds[0]},{bounds[1]}",
    }
    return {"role": "front", "door": "text", **{key: value for key, value in told.items() if value}}


def replicas_by_model(deployment: Deployment) -> list[str]:
    """The Triton models of each LLM, joined."""
    numbers, names = deployment.replicas, deployment.subservers
    return [",".join(names[number] for number in numbers.of(model)) for model in range(len(numbers.counts))]


def ensemble_steps() -> tuple[Step, ...]:
    """preprocessing -> router -> postprocessing. A step after the decoupled router takes its tensors from
    the router only: Triton refuses to mix them with earlier ones."""
    given = [spec.name for spec in ENSEMBLE.inputs]
    through = {TENSOR_OF_INPUT.get(name, name): name for name in given if name not in BY_PREPROCESSING}
    answers = {spec.name for spec in ENSEMBLE.outputs} & {spec.name for spec in ROUTER.outputs}
    return (
        Step(
            "preprocessing",
            {tensor: name for name, tensor in BY_PREPROCESSING.items()},
            {name: f"_{name}" for name in BETWEEN},
        ),
        Step(
            "router",
            {tensor: f"_{name}" for name, tensor in BETWEEN.items()} | through,
            {"text": "_TEXT", "request_uid": "_UID"} | {name: name for name in sorted(answers)},
        ),
        Step("postprocessing", {"TEXT": "_TEXT", "REQUEST_UID": "_UID"}, {"OUTPUT": "text_output"}),
    )
