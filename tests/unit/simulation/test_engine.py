"""The simulated engine notices every way in which a plan can be wrong."""

from __future__ import annotations

import math

import pytest

from router_backend.core.request import RequestId, Sampling
from router_backend.scheduler.batch import BatchPlan, LaunchReason, Needs, Row
from router_backend.simulation.commits import CommitLog
from router_backend.simulation.engine import Engine, EngineSettings
from router_backend.simulation.script import EMPTY, Script, context_of, extended
from tests.builders import request

SEED = 5
SCRIPT = Script(vocab_size=50)
PROMPT = (1, 2, 3, 4, 5)


def engine(latency_s: tuple[float, ...] = (1.0,)) -> Engine:
    """Two requests with equal prompts in a pool of 8 blocks of 2."""
    commits = CommitLog()
    for name in ("a", "b"):
        commits.open(request(name, PROMPT))
    return Engine(EngineSettings(1, 8, 2, latency_s), SCRIPT, commits)


def row(name: str = "a", start: int = 0, token_ids: tuple[int, ...] = PROMPT, **changes: object) -> Row:
    is_last = start + len(token_ids) == len(PROMPT)
    made = Row(RequestId(name), list(token_ids), start, [0, 1, 2], is_last, Sampling(seed=SEED), 0)
    return made._replace(**changes)  # type: ignore[arg-type]


def plan(*rows: Row, needs: Needs | None = None) -> BatchPlan:
    return BatchPlan(1, rows, needs or Needs(), LaunchReason.ALONE)


def test_a_token_depends_on_everything_before_it_and_on_who_writes_it():
    output = engine().execute(plan(row(), row("b", blocks=[3, 4, 5])))

    expected = SCRIPT.token(SEED, context_of(PROMPT), 1)
    assert output.tokens.tolist() == [expected, expected]
    assert output.entropy is None
    others = [SCRIPT.token(SEED, context_of((1, 1, 3, 4, 5)), 1), SCRIPT.token(SEED, context_of(PROMPT), 0)]
    assert expected not in others


def test_entropies_come_when_they_are_asked_for_and_never_touch_an_eighth():
    output = engine().execute(plan(row(), needs=Needs(entropy=True)))

    assert output.entropy is not None
    assert output.entropy.tolist() == pytest.approx([SCRIPT.entropy(SEED, 5, 1)])
    eighths = [(8 * SCRIPT.entropy(SEED, at, 1) / math.log(50)) % 1 for at in range(40)]
    assert eighths == pytest.approx([0.5] * 40)


def test_a_prompt_may_come_in_chunks_and_only_the_last_one_samples():
    running = engine()

    assert running.execute(plan(row(token_ids=(1, 2, 3)))).tokens.tolist() == []
    assert len(running.execute(plan(row(start=3, token_ids=(4, 5)))).tokens) == 1
    assert running.sampled == 1


def test_a_cached_prefix_of_somebody_else_is_read_when_it_is_the_same():
    running = engine()
    running.execute(plan(row()))

    shared = row("b", start=4, token_ids=(5,), blocks=[0, 1, 6])

    assert len(running.execute(plan(shared)).tokens) == 1


def test_the_last_token_may_be_fed_again():
    running = engine()
    running.execute(plan(row()))

    assert len(running.execute(plan(row(start=4, token_ids=(5,)))).tokens) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        row(token_ids=(1, 2, 9)),
        row(token_ids=()),
        row(is_sampling=False),
        row(token_ids=(1, 2), is_sampling=True),
        row(blocks=[0, 1, 1]),
        row(blocks=[0, 1]),
        row(start=1, token_ids=(2, 3, 4, 5)),
        row(start=2, token_ids=(3, 4, 5)),
    ],
    ids=["other token", "nothing", "no sample", "sample", "twice", "too short", "a gap", "never written"],
)
def test_a_wrong_row_is_refused(wrong: Row):
    with pytest.raises(AssertionError):
        engine().execute(plan(wrong))


def test_a_block_that_somebody_else_has_overwritten_is_noticed():
    running = engine()
    running.commits.open(request("c", (7, 7, 7, 7, 7)))
    running.execute(plan(row(token_ids=(1, 2, 3, 4))))
    running.execute(plan(row("c", token_ids=(7, 7, 7, 7, 7), blocks=[1, 6, 7])))

    with pytest.raises(AssertionError, match="reads a cache that is not its own"):
        running.execute(plan(row(start=4, token_ids=(5,))))


def test_a_block_at_another_position_is_noticed():
    running = engine()
    running.execute(plan(row(token_ids=(1, 2, 3, 4))))

    with pytest.raises(AssertionError, match="reads a cache that is not its own"):
        running.execute(plan(row(start=4, token_ids=(5,), blocks=[1, 0, 2])))


def test_an_empty_plan_is_a_mistake():
    with pytest.raises(AssertionError, match="no rows"):
        engine().execute(plan())


def test_step_time_follows_the_number_of_rows_up_to_the_last_entry():
    rows = [row(), row("b"), row(), row()]

    assert [engine((1.0, 1.5)).step_s(plan(*rows[:count])) for count in (1, 2, 4)] == [1.0, 1.5, 1.5]


def test_a_script_ends_as_often_as_it_should():
    ending = Script(vocab_size=50, end_p=0.25)
    tokens = [ending.token(SEED, context, 0) for context in range(2000)]

    assert 0.2 < tokens.count(Script.END_ID) / 2000 < 0.3
    assert 0 not in [SCRIPT.token(SEED, context, 0) for context in range(2000)]
    assert max(tokens) < 50


def test_a_context_is_its_tokens_in_order():
    assert context_of(()) == EMPTY
    assert context_of((1, 2)) == extended(extended(EMPTY, 1), 2) != context_of((2, 1))


def test_a_life_of_a_request_id_begins_once():
    with pytest.raises(AssertionError, match=r"'a', epoch=0.* is used twice"):
        engine().commits.open(request("a"))
