"""Text that waits leaves when it is due, and nothing wakes the front while none waits."""

from router_backend.core.request import RequestId
from tests.unit.loops.front_bench import Bench, Port, emit, ready_bench


def patient_bench() -> tuple[Bench, RequestId, Port]:
    """20 ms between two responses; the first has left now."""
    bench = ready_bench(flush_ms=20, flush_tokens=8)
    request_id, port = bench.ask()
    bench.send("small", emit(request_id, 0, 1))
    bench.turn()
    assert port.text == "b"
    return bench, request_id, port


def test_a_slow_answer_is_never_held_up() -> None:
    bench, request_id, port = patient_bench()
    bench.send("small", emit(request_id, 1, 2))
    bench.turn(0.021)
    assert port.text == "bc"


def test_a_fast_answer_waits_for_its_time_and_then_leaves_without_anything_else_happening() -> None:
    bench, request_id, port = patient_bench()
    began_at = bench.now
    for position in (1, 2):
        bench.send("small", emit(request_id, position, 2))
        bench.turn(0.005)
    waiting = port.text
    wakes_at = bench.loop.wakes_at
    bench.turn(0.011)

    assert (waiting, wakes_at, port.text) == ("b", began_at + 0.02, "bcc")


def test_the_front_sleeps_till_its_next_tick_while_no_text_waits() -> None:
    bench, request_id, _ = patient_bench()
    at_rest = bench.loop.wakes_at
    bench.send("small", emit(request_id, 1, 2))
    bench.turn(0.021)
    assert bench.loop.wakes_at == at_rest
