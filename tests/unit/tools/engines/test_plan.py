"""The commands are those of trtllm.md section 9, word for word."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.tools.engines.directories import LARGE, SMALL, write
from tools.engines.hugging_face import HuggingFaceModel, read_model
from tools.engines.plan import TAP_FILE, EnginePlan, build, commands, conversion, shell_text

SHAPE = (
    "--kv_cache_type paged --remove_input_padding enable --context_fmha enable "
    "--use_paged_context_fmha enable --tokens_per_block 32 --max_beam_width 1 --max_batch_size 64 "
    "--max_input_len 10240 --max_seq_len 10240 --max_num_tokens 8192 "
    "--opt_num_tokens 64 --logits_dtype float32"
)


@pytest.fixture
def small(tmp_path: Path) -> HuggingFaceModel:
    return read_model(write(tmp_path / "Qwen3-0.6B", SMALL))


def test_one_rank(small: HuggingFaceModel) -> None:
    plan = EnginePlan(small, Path("/models/small/1"), Path("/ckpt/small"))
    assert [" ".join(command) for command in commands(plan)] == [
        "python3 /app/examples/models/core/qwen/convert_checkpoint.py "
        f"--model_dir {small.folder} --output_dir /ckpt/small --dtype bfloat16",
        "trtllm-build --checkpoint_dir /ckpt/small --output_dir /models/small/1/engine "
        f"--gpt_attention_plugin bfloat16 --gemm_plugin bfloat16 {SHAPE}",
    ]


def test_two_ranks_share_the_weights_and_are_built_side_by_side(tmp_path: Path) -> None:
    plan = EnginePlan(read_model(write(tmp_path / "l", LARGE)), Path("/m/large/1"), Path("/c"), ranks=2)
    assert conversion(plan)[-2:] == ("--tp_size", "2")
    assert " --gemm_plugin bfloat16 --nccl_plugin auto --workers 2 --kv_cache_type" in " ".join(build(plan))


def test_the_tap_is_a_class_of_a_file_that_is_there(small: HuggingFaceModel) -> None:
    plan = EnginePlan(small, Path("/m/small/1"), Path("/c"), is_tapped=True, extra=("--x", "1"))
    assert build(plan)[-6:] == (
        *("--model_cls_file", str(TAP_FILE), "--model_cls_name", "RoutedQWen", "--x", "1"),
    )
    assert f"class {small.tap}(" in TAP_FILE.read_text()


def test_a_command_is_shown_one_option_a_line() -> None:
    assert shell_text(("run", "it", "--a", "b c", "--d")) == "run it \\\n  --a 'b c' \\\n  --d"
