"""Flags that break the contract are refused with flag and cure, before anything is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from python_backend.runner.trtllm_runner.contract import CONFIG_RULES
from tests.unit.tools.engines.directories import SMALL, write
from tools.engines.hugging_face import read_model
from tools.engines.plan import EnginePlan, Limits, build
from tools.engines.refusals import FORBIDDEN, RULES, flag_refusals, flags, refusals


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--use_paged_context_fmha disable", "--use_paged_context_fmha enable"),
        ("--gather_context_logits", "no --gather_context_logits and no --gather_all_token_logits"),
        ("--gather_all_token_logits", "no --gather_context_logits and no --gather_all_token_logits"),
        ("--kv_cache_type continuous", "--kv_cache_type paged"),
        ("--max_beam_width=4", "--max_beam_width 1"),
        ("--multiple_profiles enable", "--multiple_profiles disable"),
        ("--fast_build", "leave it out: the engine would lack its weights"),
        ("--max_batch_size 8", "python -m tools.build_engine --batch-max"),
    ],
)
def test_a_flag_that_breaks_the_contract_is_named_with_its_cure(words: str, complaint: str) -> None:
    (refusal,) = flag_refusals(words.split())
    assert refusal.startswith(words.replace("=", " ").split()[0])
    assert refusal.endswith(f" breaks the contract: {complaint}")


def test_other_flags_and_allowed_values_pass() -> None:
    given = (
        "--multi_block_mode enable --use_paged_context_fmha ENABLE --max_beam_width 1 --user_buffer disable"
    )
    assert list(flag_refusals(given.split())) == []


def test_flags_are_read_with_and_without_values() -> None:
    assert list(flags(["--a", "1", "--b", "--c=x", "--d", "1", "2"])) == [
        *(("a", "1"), ("b", "enable"), ("c", "x"), ("d", "1 2")),
    ]


def test_what_the_tool_itself_writes_breaks_no_rule_of_the_contract(tmp_path: Path) -> None:
    plan = EnginePlan(read_model(write(tmp_path / "m", SMALL)), Path("/m/1"), Path("/c"), ranks=2)
    own = {item.flag for item in FORBIDDEN}
    written = [
        word for name, value in flags(build(plan)[1:]) if name not in own for word in (f"--{name}", value)
    ]
    assert list(flag_refusals(written)) == []


def test_every_rule_about_a_build_can_be_broken_by_one_flag() -> None:
    assert len(RULES) == len(CONFIG_RULES), "two rules share the last part of their path"


def test_sizes_that_cannot_be_are_named(tmp_path: Path) -> None:
    model = read_model(write(tmp_path / "m", SMALL))
    limits = Limits(batch_max=64, length_max=50_000, batch_tokens_max=32, tokens_per_block=48)
    found = refusals(EnginePlan(model, Path("/m/1"), Path("/c"), limits=limits))
    assert [line.split()[0] for line in found] == ["--length-max", "--batch-tokens-max", "--tokens-per-block"]
    assert refusals(EnginePlan(model, Path("/m/1"), Path("/c"))) == []
