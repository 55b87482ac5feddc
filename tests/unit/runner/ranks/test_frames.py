"""What is packed comes out again, and the feed is as small as it is said to be."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from python_backend.runner.base import RunnerInfo
from python_backend.runner.ranks.frames import (
    PLAIN,
    pack_feed,
    pack_info,
    pack_output,
    pack_plan,
    unpack_feed,
    unpack_info,
    unpack_output,
    unpack_plan,
)
from router_backend.core.request import RequestId, Sampling
from router_backend.scheduler.batch import BatchPlan, DraftReading, LaunchReason, Needs, Row, StepOutput

ids = st.lists(st.integers(0, 200_000), min_size=1, max_size=6)
samplings = st.sampled_from(
    [
        PLAIN,
        Sampling(temperature=0.7, top_k=5, seed=2**40),
        Sampling(logit_bias=((3, -1.5), (4, 2.0)), bad_words=((1, 2), (3,)), min_tokens=2),
    ]
)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    sampling = draw(samplings)
    history = draw(ids) if sampling.is_constrained else []
    stops = frozenset(draw(ids)) if sampling.min_tokens else frozenset()
    return Row(
        RequestId(draw(st.text(max_size=5))),
        draw(ids),
        draw(st.integers(0, 9000)),
        draw(ids),
        draw(st.booleans()),
        sampling,
        draw(st.integers(0, 3)),
        history,
        draw(st.integers(1, 9000)),
        stops,
        draw(st.integers(0, 3)),
    )


plans = st.builds(
    BatchPlan,
    st.integers(0, 2**31 - 1),
    st.lists(rows(), min_size=1, max_size=5).map(tuple),
    st.sampled_from([Needs(), Needs(True, True, 4, True, ("a", "b"))]),
    st.sampled_from(list(LaunchReason)),
)


@settings(max_examples=40, deadline=None)
@given(plans)
def test_a_plan_comes_out_as_it_went_in(plan: BatchPlan) -> None:
    unpacked, feed = unpack_plan(pack_plan(plan))
    assert (unpacked, feed) == (plan, pack_feed(plan))


@settings(max_examples=40, deadline=None)
@given(plans)
def test_other_ranks_learn_what_to_feed_and_nothing_else(plan: BatchPlan) -> None:
    fed = unpack_feed(pack_feed(plan))
    assert pack_feed(fed) == pack_feed(plan)
    assert {row.sampling for row in fed.rows} == {PLAIN}


def test_the_feed_of_sixty_four_long_sequences_stays_below_a_hundred_kilobytes() -> None:
    blocks = list(range(320))
    row = Row(RequestId("r"), [1], 10_000, blocks, True, PLAIN, 0)
    assert len(pack_feed(BatchPlan(1, (row,) * 64, Needs(), LaunchReason.DRAIN))) < 100_000


def test_an_output_comes_out_as_it_went_in() -> None:
    output = StepOutput(
        np.array([5, 6]),
        np.float32([-0.5, -1]),
        topk_ids=np.array([[1, 2, 3], [4, 5, 6]]),
        hidden=np.ones((2, 4), np.float32),
        scores={"citer": np.float32([0.25, 0.5])},
        draft=DraftReading(np.array([[7], [8]]), np.float32([[0.1], [0.2]])),
    )
    found = unpack_output(pack_output(output))
    assert found.entropy is None and list(found.scores) == ["citer"]
    assert found.draft is not None and output.draft is not None and found.draft.logprobs is None
    pairs = [
        (found.tokens, output.tokens),
        (found.logprobs, output.logprobs),
        (found.topk_ids, output.topk_ids),
        (found.hidden, output.hidden),
        (found.scores["citer"], output.scores["citer"]),
        (found.draft.tokens, output.draft.tokens),
        (found.draft.nll, output.draft.nll),
    ]
    assert all(np.array_equal(got, put) and got.dtype == put.dtype for got, put in pairs)


def test_what_an_engine_says_of_itself_comes_out_as_it_went_in() -> None:
    info = RunnerInfo(100, 50, 8, 4, frozenset({3, 9}), 16)
    assert unpack_info(pack_info(info)) == info
