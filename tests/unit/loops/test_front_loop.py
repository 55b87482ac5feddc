"""The front's loop: every client is served or refused, and told so exactly once."""

from concurrent.futures import Future

import pytest

from python_backend.loops.base import Ask, Finish, Piece
from python_backend.loops.front_counts import AFTER_HANDOFF, SAME_MODEL
from python_backend.transport.base import Frames, Peer
from router_backend.core.effects import Reason
from router_backend.core.request import ModelIndex
from router_backend.handoff.message import Beat, Finished
from tests.unit.loops.front_bench import EOS, LARGE, SMALL, Bench, Port, close, emit, ready_bench


class BrokenTransport:
    def post(self, peer: Peer, frames: Frames) -> bool:
        return False

    def poll(self, timeout_s: float) -> list[tuple[Peer, Frames]]:
        raise ConnectionError("broken")

    def wake(self) -> None: ...

    def close(self) -> None: ...


def test_an_answer_by_two_models_is_streamed_in_order() -> None:
    bench = ready_bench()
    request_id, port = bench.ask("hi", max_tokens=3)
    (request,) = bench.admitted()
    assert (request.request_id, request.home, request.max_tokens) == (request_id, "front", 3)
    assert request.stop_ids == {EOS}
    bench.send("large", emit(request_id, 1, 1, model=LARGE))
    bench.turn()
    bench.send("small", emit(request_id, 0, 0), emit(request_id, 2, 2), close(request_id, 3))
    bench.turn()
    assert [(piece.text, piece.token_ids, piece.sources) for piece in port.pieces] == [
        ("ab", (0, 1), (SMALL, LARGE)),
        ("c", (2,), (SMALL,)),
        ("", (), ()),
    ]
    assert port.finish == Finish(Reason.LENGTH, "", "", "", 2, 3, 1, 2, 7)
    assert bench.aborted("small") == bench.aborted("large") == []


def test_without_streaming_there_is_exactly_one_piece() -> None:
    bench = ready_bench()
    port = Port()
    request_id = bench.loop.submit(Ask(text="hi", max_tokens=2), port)
    bench.turn()
    bench.send("small", emit(request_id, 0, 0), emit(request_id, 1, EOS), close(request_id, 2, Reason.STOP))
    bench.turn()
    finish = Finish(Reason.STOP, "", "", "", 2, 2, 1, 2, 7)
    assert port.pieces == [Piece("a", (0, EOS), (0, 0), 2, finish, (1, 0))]


def test_a_stop_string_ends_the_request_everywhere() -> None:
    bench = ready_bench()
    request_id, port = bench.ask(stop=("bc",))
    bench.admitted()
    bench.send("small", emit(request_id, 0, 0, 1))
    bench.send("large", emit(request_id, 2, 2, 3, model=LARGE))
    bench.turn()
    assert (port.text, port.finishes) == ("a", [])
    assert bench.aborted("small") == bench.aborted("large") == [request_id]
    bench.send("small", emit(request_id, 4, 4), close(request_id, 5, Reason.CANCELLED))
    bench.send("small", emit(request_id, 5, 5))
    bench.turn()
    bench.turn(1.0)
    assert port.finish == Finish(Reason.STOP, "", "", "bc", 2, 3, 1, 2, 7)
    assert (port.text, bench.loop.snapshot().stale_messages) == ("a", 1)
    assert bench.aborted("small") == []


def test_same_and_empty_client_ids_are_different_requests() -> None:
    bench = ready_bench()
    first, first_port = bench.ask(client_id="same", max_tokens=1)
    second, second_port = bench.ask(client_id="same", max_tokens=1)
    bench.send("small", emit(second, 0, 1), close(second, 1), emit(first, 0, 0), close(first, 1))
    bench.turn()
    assert (first != second, first_port.text, second_port.text) == (True, "a", "b")


def test_a_cancelled_request_is_aborted_everywhere_and_ends_once() -> None:
    bench = ready_bench()
    request_id, port = bench.ask()
    bench.loop.cancel(request_id)
    bench.loop.cancel(request_id)
    bench.turn()
    assert (port.finish.reason, port.finish.code) == (Reason.CANCELLED, "TR_CANCELLED")
    assert bench.aborted("small") == bench.aborted("large") == [request_id]


def test_requests_beyond_the_limit_wait_in_order_and_the_rest_is_refused_at_once() -> None:
    bench = ready_bench(live_max=1, queue_max=2)
    asked = [bench.ask(max_tokens=1) for _ in range(4)]
    assert [request.request_id for request in bench.admitted()] == [asked[0][0]]
    assert asked[3][1].finish.code == "TR_QUEUE_FULL"
    bench.send("small", close(asked[0][0], 0, Reason.STOP))
    bench.turn()
    assert [request.request_id for request in bench.admitted()] == [asked[1][0]]
    assert asked[2][1].pieces == []


def test_a_queued_request_that_is_cancelled_gives_its_place_up() -> None:
    bench = ready_bench(live_max=1, queue_max=1)
    (first, _), (second, port) = bench.ask(), bench.ask()
    bench.loop.cancel(second)
    bench.turn()
    third, _ = bench.ask()
    bench.loop.cancel(first)
    bench.turn()
    assert port.finish.code == "TR_CANCELLED"
    assert [request.request_id for request in bench.admitted()] == [first, third]


def test_live_and_queued_requests_end_at_their_deadline() -> None:
    bench = ready_bench(live_max=1, request_timeout_s=5.0)
    live, queued = bench.ask(timeout_s=2.0), bench.ask()
    bench.beat()
    bench.turn(1.9)
    assert live[1].pieces == []
    bench.beat()
    bench.turn(0.2)
    assert live[1].finish == Finish(
        Reason.ERROR, "TR_DEADLINE", "no complete answer within 2 s", prompt_tokens=2, seed=7
    )
    bench.loop.cancel(bench.ask()[0])
    bench.beat()
    for _ in range(3):
        bench.turn(1.0)
        bench.beat()
    assert queued[1].finish.code == "TR_DEADLINE"


@pytest.mark.parametrize("up", [(), ("small",), ("large",)])
def test_requests_are_refused_until_every_model_is_up(up: tuple[str, ...]) -> None:
    bench = Bench()
    if up:
        bench.beat(*up)
    _, port = bench.ask()
    missing = "large" if up == ("small",) else "small"
    assert port.finish.code == "TR_PEER_LOST"
    assert f"model {missing!r} is not running" in port.finish.message


def test_a_policy_that_never_leaves_the_entry_needs_only_that() -> None:
    bench = Bench()
    bench.beat("large")
    bench.ask(policy="fixed", policy_params={"entry": "large"})
    assert [request.policy.name for request in bench.admitted("large")] == ["fixed"]


def test_a_silent_entry_model_ends_its_requests_and_refuses_new_ones() -> None:
    bench = ready_bench(peer_timeout_s=2.0)
    request_id, port = bench.ask()
    bench.send("small", emit(request_id, 0, 0))
    for _ in range(3):
        bench.turn(0.8)
        bench.beat("large")
    assert (port.text, port.finish.code) == ("a", "TR_PEER_LOST")
    assert "'small' died" in port.finish.message
    assert bench.aborted("large") == [request_id]
    assert bench.ask()[1].finish.code == "TR_PEER_LOST"
    bench.beat("small")
    assert bench.ask()[1].pieces == []


def test_a_restarted_entry_model_ends_what_the_old_process_held() -> None:
    bench = ready_bench()
    _, port = bench.ask()
    bench.beat("small", instance=2)
    assert port.finish.code == "TR_PEER_LOST"
    assert bench.ask()[1].pieces == []


def test_what_was_handed_to_a_lost_peer_is_closed_by_who_handed_it() -> None:
    bench = ready_bench()
    request_id, port = bench.ask()
    bench.beat("large", instance=2)
    assert port.pieces == []
    bench.send("small", close(request_id, 0, Reason.ERROR, "TR_PEER_LOST: large restarted"))
    bench.turn()
    assert (port.finish.code, port.finish.message) == ("TR_PEER_LOST", "large restarted")


def test_a_queued_request_is_refused_when_a_model_died_meanwhile() -> None:
    bench = ready_bench(live_max=1)
    first, (_, port) = bench.ask(), bench.ask()
    bench.network.cut("large")
    for _ in range(3):
        bench.turn(0.9)
        bench.beat("small")
    bench.loop.cancel(first[0])
    bench.turn()
    assert port.finish.message == "model 'large' cannot be reached: try again later"


def test_a_slow_reader_is_cancelled_and_others_are_not() -> None:
    bench = ready_bench(unsent_max=2, slow_reader_s=1.0, flush_tokens=1)
    (slow, slow_port), (quick, quick_port) = bench.ask(), bench.ask()
    slow_port.unsent = 2
    bench.send("small", emit(slow, 0, 0, 1), emit(quick, 0, 0))
    bench.turn()
    bench.turn(1.0)
    assert (slow_port.text, slow_port.finish.code) == ("ab", "TR_SLOW_READER")
    assert (quick_port.text, quick_port.finishes) == ("a", [])
    assert bench.aborted("large") == [slow]


def test_tokens_that_cannot_be_are_a_protocol_error_of_that_request_alone() -> None:
    bench = ready_bench()
    (wrong, port), (_, other) = bench.ask(max_tokens=2), bench.ask()
    bench.send("small", emit(wrong, 2, 1))
    bench.turn()
    assert (port.finish.code, other.pieces) == ("TR_PROTOCOL", [])


def test_tokens_by_a_model_that_does_not_exist_are_a_protocol_error() -> None:
    bench = ready_bench()
    request_id, port = bench.ask()
    bench.send("small", emit(request_id, 0, 1, model=ModelIndex(2)))
    bench.turn()
    assert port.finish.message == "tokens by model 2, the deployment has 2"
    assert bench.aborted("small") == [request_id]


def test_frames_that_nobody_should_send_are_counted_and_dropped() -> None:
    bench = ready_bench()
    bench.subservers["small"].post("front", [b"xx", b"y"])  # type: ignore[arg-type]
    bench.send("small", Finished(bench.ask()[0], 0, SMALL))
    bench.turn()
    bench.turn(1.0)
    assert bench.loop.snapshot().bad_messages == 2


def test_a_bad_request_is_refused_by_name() -> None:
    bench = ready_bench()
    _, port = bench.ask("")
    assert port.pieces == [
        Piece(
            finish=Finish(
                Reason.ERROR,
                "TR_INVALID_ARGUMENT",
                "text_input: '' is an empty prompt: send at least one token",
            )
        )
    ]


def test_a_fault_of_ours_ends_that_request_alone() -> None:
    bench = ready_bench()
    _, port = bench.ask(policy=3)
    _, other = bench.ask()
    assert (port.finish.code, other.pieces) == ("TR_INVALID_ARGUMENT", [])
    third = bench.ask(timeout_s=[])[1]
    assert third.finish.code == "TR_INTERNAL"


def test_draining_finishes_what_is_open_and_refuses_the_rest() -> None:
    bench = ready_bench()
    request_id, port = bench.ask(max_tokens=1)
    bench.loop.stop(5.0)
    bench.turn()
    assert bench.ask()[1].finish.code == "TR_DRAINING"
    bench.send("small", emit(request_id, 0, 0), close(request_id, 1))
    bench.turn(0.1)
    assert (port.finish.reason, bench.loop.is_stopped) == (Reason.LENGTH, True)
    late = Port()
    bench.loop.submit(Ask(text="hi"), late)
    assert late.finish.code == "TR_DRAINING"


def test_what_does_not_finish_within_the_drain_ends_with_an_error() -> None:
    bench = ready_bench()
    _, port = bench.ask()
    bench.loop.stop(1.0)
    bench.turn()
    bench.turn(1.0)
    assert (port.finish.code, bench.loop.is_stopped) == ("TR_SHUTDOWN", True)
    assert bench.aborted("small")


def test_a_turn_that_fails_tells_every_client_before_the_error_goes_on() -> None:
    bench = ready_bench()
    _, port = bench.ask()
    waiting = Port()

    class Broken(Port):
        @property
        def unsent(self) -> int:
            raise AssertionError("broken")

        @unsent.setter
        def unsent(self, value: int) -> None: ...

    broken = Broken()
    bench.loop.submit(Ask(text="hi"), broken)
    bench.now += 1.0
    with pytest.raises(AssertionError, match="broken"):
        bench.loop.run()
    bench.loop.submit(Ask(text="hi"), waiting)
    assert [port.finish.code, broken.finish.code, waiting.finish.code] == [
        "TR_SHUTDOWN",
        "TR_SHUTDOWN",
        "TR_DRAINING",
    ]


def test_a_client_that_nobody_looked_at_before_the_loop_broke_is_told() -> None:
    bench = ready_bench()
    port = Port()
    bench.loop.submit(Ask(text="hi"), port)
    bench.loop._transport = BrokenTransport()
    with pytest.raises(ConnectionError):
        bench.loop.run()
    assert port.finish.code == "TR_DRAINING"


def test_a_stranger_that_beats_is_nobody() -> None:
    bench = Bench()
    bench.send("small", Beat("token_router_2", 9))
    bench.turn()
    assert bench.loop.snapshot().gauges.peers_up == (False, False)


def test_the_front_beats_to_every_subserver() -> None:
    bench = Bench(heartbeat_ms=250)
    bench.turn()
    bench.turn(0.3)
    assert [len(transport.poll(0.0)) for transport in bench.subservers.values()] == [2, 2]


def test_an_abort_that_finds_a_full_queue_is_posted_again() -> None:
    bench = ready_bench()
    request_id, _ = bench.ask()
    bench.network._queue_max = 0
    bench.loop.cancel(request_id)
    bench.turn()
    bench.network._queue_max = 100
    bench.admitted()
    bench.turn(0.1)
    assert bench.aborted("small") == bench.aborted("large") == [request_id]


def test_the_snapshot_counts_every_request_once() -> None:
    bench = ready_bench(live_max=3)
    done, _ = bench.ask(max_tokens=2)
    bench.ask("")
    gone, _ = bench.ask()
    bench.ask()
    bench.turn(0.01)
    bench.send("small", emit(done, 0, 0))
    bench.turn(0.04)
    bench.send("large", emit(done, 1, 1, model=LARGE))
    bench.send("small", close(done, 2))
    bench.loop.cancel(gone)
    bench.turn()
    bench.turn(1.0)
    seen = bench.loop.snapshot()
    assert (seen.requests, seen.rejections) == (
        {"rejected": 1, "length": 1, "cancelled": 1},
        {"TR_INVALID_ARGUMENT": 1},
    )
    assert (seen.gauges.live, seen.gauges.queued, seen.gauges.peers_up) == (1, 0, (True, True))
    assert (seen.tokens, seen.discarded, seen.handoffs, seen.is_ready) == ((1, 1), 1, 2, True)
    names = ("ttft_seconds", SAME_MODEL, AFTER_HANDOFF, "e2e_seconds", "detokenize_seconds")
    assert [sum(seen.spreads[name].counts) for name in names] == [1, 0, 1, 2, 2]
    assert seen.spreads["routed_fraction"].total == 0.5


def test_a_result_that_comes_after_the_client_left_is_dropped() -> None:
    bench = ready_bench()
    job: Future[object] = Future()
    bench.loop._parts.readers.submit = lambda *_: job  # type: ignore[method-assign,assignment,return-value]
    request_id, port = bench.ask()
    bench.loop.cancel(request_id)
    bench.turn()
    job.set_exception(ValueError("late"))
    bench.turn()
    assert port.finish.code == "TR_CANCELLED"
