"""A front that loses a model: which lives begin, what the client sees, who is told to let go."""

from __future__ import annotations

from router_backend.core.effects import Reason
from router_backend.core.request import RequestId
from router_backend.handoff.message import Abort, Admit
from tests.unit.loops.front_bench import EOS, LARGE, Bench, close, emit

STITCH = {"policy": "r_stitch", "policy_params": {"cutoff": 0.5}}
GONE = "TR_PEER_LOST: model 1 stopped while it held the request; send it again"
TIMEOUT_S = 2.0


def bench_that(on_peer_loss: str) -> Bench:
    bench = Bench(on_peer_loss=on_peer_loss)
    bench.beat()
    return bench


def lose(bench: Bench, name: str) -> None:
    """`name` falls silent, the other one does not; the next turn sees it."""
    other = "small" if name == "large" else "large"
    for _ in range(5):
        bench.now += TIMEOUT_S / 4
        bench.beat(other)


def admissions(bench: Bench, name: str) -> list[Admit]:
    return [message for message in bench.received(name) if isinstance(message, Admit)]


def test_another_life_begins_alone_with_what_is_in_order_and_the_client_sees_one_answer() -> None:
    bench = bench_that("continue_local")
    first, port = bench.ask("hi", max_tokens=4, **STITCH)
    bench.send("small", emit(first, 0, 1))
    bench.send("large", emit(first, 2, 9, model=LARGE))
    bench.turn()
    lose(bench, "large")
    second = RequestId(f"{first}.1")
    heard = bench.received("small")
    (begun,) = [message for message in heard if isinstance(message, Admit)][1:]
    bench.send("large", emit(first, 1, 8, model=LARGE))
    bench.send("small", emit(second, 1, 2), emit(second, 2, 3), emit(second, 3, 4), close(second, 4))
    bench.turn()

    assert (begun.request.request_id, begun.answer) == (second, (1,))
    assert begun.request.policy.options() == {"mode": "never", "entry": "small"}
    assert [message for message in heard if isinstance(message, Abort)] == [Abort(first, bench.epochs[first])]
    assert (port.text, port.finish.reason, port.finish.output_tokens) == ("bcde", Reason.LENGTH, 4)
    bench.turn(1.0)
    snapshot = bench.loop.snapshot()
    assert (snapshot.recoveries, snapshot.stale_messages, snapshot.errors) == (1, 1, {})


def test_a_close_that_tells_of_a_loss_is_one() -> None:
    bench = bench_that("continue_local")
    first, port = bench.ask(max_tokens=3, **STITCH)
    bench.send("small", emit(first, 0, 1), close(first, 1, Reason.ERROR, GONE))
    bench.turn()
    begun = admissions(bench, "small")[-1]

    assert (begun.request.request_id, begun.answer, port.finishes) == (f"{first}.1", (1,), [])
    assert begun.request.policy.name == "r_stitch", "both are alive, as far as the front knows"


def test_retry_waits_for_the_model_and_then_gives_up() -> None:
    bench = bench_that("retry")
    first, port = bench.ask(max_tokens=3, **STITCH)
    second, other = bench.ask(max_tokens=3, **STITCH)
    lose(bench, "large")
    waiting = len(admissions(bench, "small"))
    bench.beat()
    bench.turn(0.1)
    begun = admissions(bench, "small")
    lose(bench, "large")
    for _ in range(12):
        bench.now += 0.5
        bench.beat("small")

    assert waiting == 2 and {one.request.request_id for one in begun} == {f"{first}.1", f"{second}.1"}
    assert {one.finish.code for one in (port, other)} == {"TR_PEER_LOST"}


def test_who_comes_back_is_told_again_to_let_go() -> None:
    bench = bench_that("continue_local")
    first, _ = bench.ask(**STITCH)
    lose(bench, "large")
    assert bench.received("large") == [], "nobody is told who cannot hear"
    bench.beat("large")
    bench.turn(0.1)

    assert bench.aborted("large") == [first]


def test_an_answer_that_was_whole_when_its_model_died_just_ends() -> None:
    bench = bench_that("retry")
    first, port = bench.ask(max_tokens=2, **STITCH)
    second, other = bench.ask(max_tokens=9, **STITCH)
    bench.send("large", emit(first, 0, 1, model=LARGE), emit(first, 1, 2, model=LARGE))
    bench.send("large", emit(second, 0, EOS, model=LARGE))
    bench.turn()
    lose(bench, "large")

    assert [one.finish.reason for one in (port, other)] == [Reason.LENGTH, Reason.STOP]


def test_an_answer_whose_last_words_died_with_their_writer_is_taken_up_again() -> None:
    bench = bench_that("continue_local")
    first, port = bench.ask(max_tokens=3, **STITCH)
    bench.send("small", emit(first, 0, 1), emit(first, 2, 3), close(first, 3))
    for _ in range(5):
        bench.now += TIMEOUT_S / 4
        bench.beat()
    begun = admissions(bench, "small")[-1]

    assert (begun.request.request_id, begun.answer, port.text) == (f"{first}.1", (1,), "b")


def test_a_client_that_leaves_between_two_lives_ends_them() -> None:
    bench = bench_that("retry")
    first, port = bench.ask(**STITCH)
    lose(bench, "large")
    bench.loop.cancel(first)
    bench.turn()
    bench.beat()

    assert port.finish.reason is Reason.CANCELLED
    assert len(admissions(bench, "small")) == 1


def test_new_requests_start_with_those_who_are_there_if_they_may() -> None:
    alone, refused = bench_that("continue_local"), bench_that("retry")
    for bench in (alone, refused):
        lose(bench, "large")
    _, served = alone.ask(**STITCH)
    _, turned_away = refused.ask(**STITCH)

    assert served.finishes == [] and admissions(alone, "small")[-1].request.policy.name == "fixed"
    assert turned_away.finish.code == "TR_PEER_LOST"


def test_the_entry_can_be_stood_in_for_as_well() -> None:
    bench = bench_that("continue_local")
    first, _ = bench.ask(**STITCH)
    lose(bench, "small")
    begun = admissions(bench, "large")

    assert [one.request.request_id for one in begun] == [f"{first}.1"]
    assert begun[0].request.policy.options() == {"mode": "never", "entry": "large"}


def test_fail_ends_what_the_entry_held_as_before() -> None:
    bench = bench_that("fail")
    _, port = bench.ask(**STITCH)
    lose(bench, "small")

    assert (port.finish.reason, port.finish.code) == (Reason.ERROR, "TR_PEER_LOST")
