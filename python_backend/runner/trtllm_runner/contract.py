"""What a TensorRT-LLM installation and an engine must offer us, as data.

Contract-tested; unverified on hardware until tools.check_trtllm has run. Imports nothing of
TensorRT-LLM, so that a deployer's tools and the tests can read it anywhere. Sources: TensorRT-LLM 1.0.0
to 1.2.1 (`models/generation_mixin.py`, `plugin/plugin.py`, `runtime/session.py`) for design 1, its
`_torch` unit tests for design 2b. A name that is not here is neither passed nor called.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Direction(str, Enum):
    INPUT = "input"
    OUTPUT = "output"


class Device(str, Enum):
    GPU = "gpu"
    CPU = "cpu"
    """An ordinary host pointer, read while the step is enqueued."""


class When(str, Enum):
    """When an engine has the tensor."""

    ALWAYS = "always"
    TENSOR_PARALLEL = "tensor_parallel"
    """Exactly if it was built for more than one rank."""
    TAPPED = "tapped"
    """If it was built with the hidden tap; wanted only where router heads or a policy read hidden states."""


@dataclass(frozen=True, slots=True)
class EngineTensor:
    """One input or output of an engine; `flag` is the build flag that mends a missing or different one.

    `dtypes` are torch's names. `shape` names the dimensions, B rows, N tokens, P pools, M blocks per
    row; several where releases differ.
    """

    name: str
    direction: Direction
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[str, ...], ...]
    device: Device
    flag: str
    when: When = When.ALWAYS

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(len(shape) for shape in self.shapes)


def _input(name: str, dtype: str, shape: tuple[str, ...], device: Device, flag: str) -> EngineTensor:
    return EngineTensor(name, Direction.INPUT, (dtype,), (shape,), device, flag)


PACKED = "--remove_input_padding enable"
PAGED = "--kv_cache_type paged"
PLUGIN = "--gpt_attention_plugin bfloat16"
LAST_ONLY = "no --gather_context_logits and no --gather_all_token_logits"
ONE_BEAM = "--max_beam_width 1"
SAME_RELEASE = "TensorRT-LLM 1.0.0 to 1.2.1"
TAP = "--model_cls_file and --model_cls_name of the hidden tap (python -m tools.build_engine --tap)"
SHARDED = "convert_checkpoint.py --tp_size, then --nccl_plugin auto"
WORKSPACE = "all_reduce_workspace"
POOL_MAPPING = "host_kv_cache_pool_mapping"
LOGITS = "logits"
HIDDEN = "router_hidden"

TENSORS = (
    _input("input_ids", "int32", ("N",), Device.GPU, PACKED),
    _input("position_ids", "int32", ("N",), Device.GPU, PACKED),
    _input("last_token_ids", "int32", ("B",), Device.GPU, LAST_ONLY),
    _input("sequence_length", "int32", ("B",), Device.GPU, PLUGIN),
    _input("context_lengths", "int32", ("B",), Device.GPU, PLUGIN),
    _input("host_context_lengths", "int32", ("B",), Device.CPU, PACKED),
    _input("host_past_key_value_lengths", "int32", ("B",), Device.CPU, PLUGIN),
    _input("host_request_types", "int32", ("B",), Device.CPU, PLUGIN),
    _input("kv_cache_block_offsets", "int32", ("P", "B", "2", "M"), Device.GPU, PAGED),
    _input("host_kv_cache_block_offsets", "int32", ("P", "B", "2", "M"), Device.CPU, PAGED),
    _input("host_kv_cache_pool_pointers", "int64", ("P", "2"), Device.CPU, PAGED),
    EngineTensor(
        POOL_MAPPING,
        Direction.INPUT,
        ("int32",),
        (("layers", "2"), ("layers",)),
        Device.CPU,
        PAGED,
    ),
    _input("host_max_attention_window_sizes", "int32", ("layers",), Device.CPU, PLUGIN),
    _input("host_sink_token_length", "int32", ("1",), Device.CPU, PLUGIN),
    _input("cache_indirection", "int32", ("B", "beams", "capacity"), Device.GPU, ONE_BEAM),
    _input("host_runtime_perf_knobs", "int64", ("16",), Device.CPU, SAME_RELEASE),
    _input("host_context_progress", "int64", ("1",), Device.CPU, SAME_RELEASE),
    EngineTensor(
        WORKSPACE,
        Direction.INPUT,
        ("int64",),
        (("pointers",),),
        Device.CPU,
        SHARDED,
        When.TENSOR_PARALLEL,
    ),
    EngineTensor(
        LOGITS,
        Direction.OUTPUT,
        ("float32", "float16"),
        (("B", "vocab_padded"),),
        Device.GPU,
        f"--logits_dtype float32, {LAST_ONLY}",
    ),
    EngineTensor(
        HIDDEN,
        Direction.OUTPUT,
        ("bfloat16", "float16", "float32"),
        (("B", "hidden"),),
        Device.GPU,
        TAP,
        When.TAPPED,
    ),
)
BY_NAME = {tensor.name: tensor for tensor in TENSORS}


@dataclass(frozen=True, slots=True)
class UnwantedTensor:
    """Tensors that an engine has when it was built with something we do not drive; `flag` leaves it out."""

    prefix: str
    flag: str


UNWANTED = (
    UnwantedTensor("allreduce_ub_", "--user_buffer disable"),
    UnwantedTensor("gemm_allreduce", "--gemm_allreduce_plugin disable"),
    UnwantedTensor("past_key_value", PAGED),
    UnwantedTensor("present_key_value", PAGED),
    UnwantedTensor("attention_mask", PLUGIN),
    UnwantedTensor("spec_decoding_", "--speculative_decoding_mode left out"),
    UnwantedTensor("prompt_", "--max_prompt_embedding_table_size 0"),
    UnwantedTensor("tasks", "--max_prompt_embedding_table_size 0"),
    UnwantedTensor("lora_", "--lora_plugin disable"),
    UnwantedTensor("host_cross_", "a decoder-only model"),
    UnwantedTensor("cross_", "a decoder-only model"),
    UnwantedTensor("hidden_states_input", "convert_checkpoint.py --pp_size 1"),
    UnwantedTensor("hidden_states_output", "convert_checkpoint.py --pp_size 1"),
)


@dataclass(frozen=True, slots=True)
class ConfigRule:
    """A value in the engine's config.json; `path` is dotted, `allowed` are its values in lower case.

    A key that is absent passes if "absent" is among them.
    """

    path: str
    allowed: tuple[str, ...]
    flag: str


OFF = ("false", "none", "absent", "0")

CONFIG_RULES = (
    ConfigRule("build_config.plugin_config.remove_input_padding", ("true",), PACKED),
    ConfigRule("build_config.plugin_config.context_fmha", ("true",), "--context_fmha enable"),
    ConfigRule(
        "build_config.plugin_config.use_paged_context_fmha", ("true",), "--use_paged_context_fmha enable"
    ),
    ConfigRule(
        "build_config.plugin_config.gpt_attention_plugin", ("bfloat16", "float16", "float32", "auto"), PLUGIN
    ),
    ConfigRule("build_config.kv_cache_type", ("paged",), PAGED),
    ConfigRule("build_config.max_beam_width", ("1",), ONE_BEAM),
    ConfigRule("build_config.gather_context_logits", OFF, LAST_ONLY),
    ConfigRule("build_config.plugin_config.multiple_profiles", OFF, "--multiple_profiles disable"),
    ConfigRule("build_config.plugin_config.reduce_fusion", OFF, "--reduce_fusion disable"),
    ConfigRule("build_config.plugin_config.user_buffer", OFF, "--user_buffer disable"),
    ConfigRule("build_config.plugin_config.gemm_allreduce_plugin", OFF, "--gemm_allreduce_plugin disable"),
    ConfigRule("build_config.plugin_config.streamingllm", OFF, "--streamingllm disable"),
    ConfigRule("build_config.plugin_config.manage_weights", OFF, "no --fast_build"),
    ConfigRule("pretrained_config.mapping.pp_size", ("1",), "convert_checkpoint.py --pp_size 1"),
    ConfigRule("pretrained_config.mapping.cp_size", ("1", "absent"), "convert_checkpoint.py --cp_size 1"),
)


class Design(str, Enum):
    """Which adapter needs a symbol (trtllm.md section 5)."""

    ENGINE = "engine"
    """Design 1, `runner: trtllm`: TensorRT engines, releases 1.0.0 to 1.2.1."""
    TORCH_FLOW = "torch_flow"
    """Design 2b, `runner: trtllm_torch`: the PyTorch flow, for releases after 1.2.1."""
    LLM_API = "llm_api"
    """Design 3, the benchmarks' baseline."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """`name` in `module`, dotted; `parameters` are those that we pass, in upstream's order, without self.

    None for what has no Python signature: an attribute, an enumeration, or compiled code.
    """

    design: Design
    module: str
    name: str
    parameters: tuple[str, ...] | None = None


_SESSION = "tensorrt_llm.runtime.session"
_UTILS = "tensorrt_llm._utils"
_PLUGIN = "tensorrt_llm.plugin.plugin"
_RESOURCES = "tensorrt_llm._torch.pyexecutor.resource_manager"

SYMBOLS = (
    Symbol(Design.ENGINE, "tensorrt_llm", "__version__"),
    Symbol(Design.ENGINE, _SESSION, "Session.from_serialized_engine", ("engine",)),
    Symbol(Design.ENGINE, _SESSION, "Session.engine"),
    Symbol(Design.ENGINE, _SESSION, "Session.infer_shapes", ("inputs",)),
    Symbol(Design.ENGINE, _SESSION, "Session.run", ("inputs", "outputs", "stream")),
    Symbol(Design.ENGINE, _SESSION, "TensorInfo", ("name", "dtype", "shape")),
    Symbol(Design.ENGINE, _UTILS, "torch_dtype_to_trt", ("dtype",)),
    Symbol(Design.ENGINE, _UTILS, "trt_dtype_to_torch", ("dtype",)),
    Symbol(Design.ENGINE, _UTILS, "mpi_comm", ()),
    Symbol(
        Design.ENGINE, "tensorrt_llm.mapping", "Mapping", ("world_size", "rank", "gpus_per_node", "tp_size")
    ),
    Symbol(Design.ENGINE, _PLUGIN, "CustomAllReduceHelper.max_workspace_size_auto", ("tp_size",)),
    Symbol(Design.ENGINE, _PLUGIN, "CustomAllReduceHelper.allocate_workspace", ("mapping", "size")),
    Symbol(Design.ENGINE, "tensorrt", "ICudaEngine.num_io_tensors"),
    Symbol(Design.ENGINE, "tensorrt", "ICudaEngine.get_tensor_name"),
    Symbol(Design.ENGINE, "tensorrt", "ICudaEngine.get_tensor_mode"),
    Symbol(Design.ENGINE, "tensorrt", "ICudaEngine.get_tensor_dtype"),
    Symbol(Design.ENGINE, "tensorrt", "ICudaEngine.get_tensor_shape"),
    Symbol(Design.ENGINE, "tensorrt", "ICudaEngine.get_tensor_profile_shape"),
    Symbol(
        Design.TORCH_FLOW,
        "tensorrt_llm._torch.model_config",
        "ModelConfig.from_pretrained",
        ("checkpoint_dir",),
    ),
    Symbol(Design.TORCH_FLOW, "tensorrt_llm._torch.models", "AutoModelForCausalLM.from_config", ("config",)),
    Symbol(
        Design.TORCH_FLOW,
        "tensorrt_llm._torch.attention_backend.utils",
        "get_attention_backend",
        ("backend_name",),
    ),
    Symbol(
        Design.TORCH_FLOW,
        "tensorrt_llm._torch.attention_backend.interface",
        "AttentionRuntimeFeatures",
        ("chunked_prefill",),
    ),
    Symbol(
        Design.TORCH_FLOW,
        "tensorrt_llm._torch.metadata",
        "KVCacheParams",
        ("use_cache", "num_cached_tokens_per_seq"),
    ),
    Symbol(
        Design.TORCH_FLOW,
        _RESOURCES,
        "KVCacheManager",
        (
            *("kv_cache_config", "kv_cache_type", "num_layers", "num_kv_heads", "head_dim"),
            *("tokens_per_block", "max_seq_len", "max_batch_size", "mapping", "dtype"),
        ),
    ),
    Symbol(Design.TORCH_FLOW, _RESOURCES, "KVCacheManager.add_dummy_requests", ("request_ids", "token_nums")),
    Symbol(Design.TORCH_FLOW, "tensorrt_llm._torch.utils", "model_extra_attrs", ("attrs",)),
    Symbol(Design.TORCH_FLOW, "tensorrt_llm.bindings", "DataType.BF16"),
    Symbol(Design.TORCH_FLOW, "tensorrt_llm.bindings.internal.batch_manager", "CacheType.SELF"),
    Symbol(Design.TORCH_FLOW, "tensorrt_llm.bindings.executor", "KvCacheConfig"),
    Symbol(Design.TORCH_FLOW, _RESOURCES, "KVCacheManager.shutdown", ()),
    Symbol(Design.TORCH_FLOW, "tensorrt_llm.mapping", "Mapping", ("world_size", "rank", "tp_size")),
    Symbol(Design.LLM_API, "tensorrt_llm", "LLM"),
    Symbol(Design.LLM_API, "tensorrt_llm", "LLM.generate_async", ("inputs", "sampling_params")),
    Symbol(Design.LLM_API, "tensorrt_llm", "LLM.shutdown", ()),
    Symbol(Design.LLM_API, "tensorrt_llm", "SamplingParams"),
    Symbol(Design.LLM_API, "tensorrt_llm.llmapi", "KvCacheConfig"),
)
