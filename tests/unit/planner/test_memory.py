"""Equal room for tokens on one device, and the sum in the refusal. Numbers are counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router_backend.core.errors import ConfigError
from router_backend.planner.memory import Footprint, parse_bytes, plan_memory

SMALL = Footprint("small", weights=1000, activations=100, kv_bytes_per_token=2)
LARGE = Footprint("large", weights=5000, activations=300, kv_bytes_per_token=8)
GIB = 1 << 30


def test_models_on_one_device_get_the_same_number_of_tokens() -> None:
    plan = plan_memory("cuda:0", 10_000, [SMALL, LARGE])

    assert [(model.kv_tokens, model.kv_bytes, model.total) for model in plan.models] == [
        (352, 704, 1804),  # 3600 bytes left / (2 + 8), in whole blocks of 16
        (352, 2816, 8116),
    ]
    assert plan.kv_tokens("large") == 352


def test_blocks_of_different_sizes_fill_up_together() -> None:
    small = Footprint("small", 0, 0, 1, block_size=16)
    large = Footprint("large", 0, 0, 1, block_size=24)

    assert [model.kv_tokens for model in plan_memory("cpu", 250, [small, large]).models] == [96, 96]


def test_what_a_deployment_fixes_is_taken_first() -> None:
    fixed = Footprint("small", 1000, 100, 2, kv_tokens=500)
    plan = plan_memory("cpu", 10_000, [fixed, LARGE])

    assert [model.kv_tokens for model in plan.models] == [500, 320]  # 2600 / 8, in blocks


def test_more_than_every_live_request_can_fill_is_not_taken() -> None:
    assert plan_memory("cpu", GIB, [SMALL, LARGE], tokens_max=100).kv_tokens("small") == 112


def test_the_plan_says_every_number() -> None:
    big = Footprint("large", 2 * GIB, 512 << 20, 1 << 16)

    assert plan_memory("cpu", 3 * GIB, [big]).lines() == [
        "memory plan of cpu: 3.00 GiB of 3.00 GiB, 0 B left",
        "  large: weights 2.00 GiB + activations 512.00 MiB + KV 8192 tokens (equal share) x 65536 B = "
        "512.00 MiB; together 3.00 GiB",
    ]
    unbound = plan_memory("cpu", None, [Footprint("small", 2048, 1, 2, kv_tokens=16)])
    assert unbound.lines()[0] == "memory plan of cpu: 2.03 KiB (no memory_budget is set)"
    assert "KV 16 tokens (fixed) x 2 B = 32 B" in unbound.lines()[1]


def test_what_does_not_fit_is_refused_with_the_arithmetic() -> None:
    with pytest.raises(ConfigError) as refusal:
        plan_memory("cpu", 6_500, [SMALL, LARGE])

    assert str(refusal.value) == (
        "TR_CONFIG: memory_budget: cpu has 6.35 KiB but needs at least 6.41 KiB "
        "(small: weights 1000 B + activations 100 B; large: weights 4.88 KiB + activations 300 B; "
        "KV of 16 tokens for each of 2 models: 160 B); "
        "raise memory_budget, lower kv_tokens, or choose a narrower dtype"
    )


def test_fixed_tokens_that_do_not_fit_are_refused_too() -> None:
    with pytest.raises(ConfigError, match=r"small: weights 0 B \+ activations 0 B \+ KV 100 x 2 B\)"):
        plan_memory("cpu", 199, [Footprint("small", 0, 0, 2, kv_tokens=100)])


FOOTPRINTS = st.builds(
    Footprint,
    st.just("model"),
    st.integers(0, 10**6),
    st.integers(0, 10**5),
    st.integers(1, 4096),
    st.sampled_from([1, 8, 16, 24]),
)


@given(st.integers(1, 10**8), st.lists(FOOTPRINTS, min_size=1, max_size=4))
def test_a_plan_fits_is_equal_and_has_no_room_for_one_more_block_each(
    budget: int, footprints: list[Footprint]
) -> None:
    try:
        plan = plan_memory("cpu", budget, footprints)
    except ConfigError:
        return
    (tokens,) = {model.kv_tokens for model in plan.models}
    more = 48 * sum(footprint.kv_bytes_per_token for footprint in footprints)

    assert tokens > 0 and plan.total <= budget < plan.total + more
    assert all(tokens % footprint.block_size == 0 for footprint in footprints)


@pytest.mark.parametrize(
    ("text", "count"),
    [("8GiB", 8 * GIB), (" 512 MiB ", GIB // 2), ("1.5gib", 3 * GIB // 2), ("2e9", 2 * 10**9), ("3KB", 3000)],
)
def test_a_size_has_a_unit(text: str, count: int) -> None:
    assert parse_bytes("memory_budget", text) == count


@pytest.mark.parametrize("text", ["", "much", "8 parsecs", "-1GiB", "0", "GiB"])
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"memory_budget: .* is not a size such as 8GiB or 512MiB"):
        parse_bytes("memory_budget", text)
