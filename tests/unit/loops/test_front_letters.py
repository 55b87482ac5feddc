"""A letter to the front holds what one step of a subserver committed, for all its clients."""

from router_backend.core.effects import Reason
from router_backend.handoff.codec import pack
from tests.unit.loops.front_bench import close, emit, ready_bench


def test_what_a_step_committed_for_several_clients_may_come_in_one_letter() -> None:
    bench = ready_bench()
    (first, port), (second, other) = bench.ask(), bench.ask()
    bench.send_letter("small", emit(first, 0, 1), emit(second, 0, 2), close(second, 1))
    bench.turn()

    assert (port.text, other.text, other.finish.reason) == ("b", "c", Reason.LENGTH)


def test_a_message_that_cannot_be_read_costs_its_letter_nothing_else() -> None:
    bench = ready_bench()
    request_id, port = bench.ask()
    good = pack(emit(request_id, 0, 1).replaced(epoch=bench.epochs[request_id]))
    assert bench.subservers["small"].post("front", [b"?", b"?", *good])  # type: ignore[arg-type]
    bench.turn(1.0)

    assert (port.text, bench.loop.snapshot().bad_messages) == ("b", 1)
