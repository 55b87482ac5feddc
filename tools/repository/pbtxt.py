"""A model's config.pbtxt as text, complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from python_backend.server.contracts import TensorSpec
from tools.repository.models import ModelConfig, Step

HEADER = "# Written by `python -m tools.make_repository`; change the deployment, not this file.\n"


def rendered(config: ModelConfig) -> str:
    body = [f'name: "{config.name}"', _kind(config), f"max_batch_size: {config.contract.batch_max}"]
    if config.is_decoupled:
        body.append("model_transaction_policy { decoupled: true }")
    body.append(_tensors("input", config.contract.inputs))
    body.append(_tensors("output", config.contract.outputs, are_outputs=True))
    body += [_scheduling(config.steps)] if config.steps else [_INSTANCES, *_parameters(config.parameters)]
    return HEADER + "\n".join(body) + "\n"


_INSTANCES = "instance_group [ { kind: KIND_CPU count: 1 } ]"
"""One process per model, always: a front owns its clients, a subserver its scheduler, and one postprocessing
keeps text in order. Never `dynamic_batching`, not even to preserve order: its queue ends the requests of a
cancelled ensemble unseen (2.51), so the cancel bridge would not fire and the request would stay open.
KIND_GPU would fail to load without a GPU; engines choose their devices themselves."""


def _kind(config: ModelConfig) -> str:
    return 'platform: "ensemble"' if config.steps else 'backend: "token_router"'


def _tensors(word: str, specs: Iterable[TensorSpec], are_outputs: bool = False) -> str:
    rows = ",\n".join(f"  {_tensor(spec, spec.is_optional and not are_outputs)}" for spec in specs)
    return f"{word} [\n{rows}\n]"


def _tensor(spec: TensorSpec, is_optional: bool) -> str:
    dims = ", ".join(map(str, spec.dims))
    optional = " optional: true" if is_optional else ""
    return f'{{ name: "{spec.name}" data_type: TYPE_{spec.kind} dims: [ {dims} ]{optional} }}'


def _parameters(parameters: Mapping[str, str]) -> list[str]:
    return [
        f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}'
        for key, value in parameters.items()
    ]


def _scheduling(steps: Iterable[Step]) -> str:
    return "ensemble_scheduling {\n  step [\n" + ",\n".join(map(_step, steps)) + "\n  ]\n}"


def _step(step: Step) -> str:
    maps = [_map("input_map", key, value) for key, value in step.inputs.items()]
    maps += [_map("output_map", key, value) for key, value in step.outputs.items()]
    return "\n".join([f'    {{ model_name: "{step.model}" model_version: -1', *maps, "    }"])


def _map(word: str, key: str, value: str) -> str:
    return f'      {word} {{ key: "{key}" value: "{value}" }}'
