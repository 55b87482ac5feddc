"""Each admission at a front is a life of its own, and late words about another one are nobody's."""

from router_backend.core.effects import Reason
from tests.unit.loops.front_bench import LARGE, close, emit, ready_bench


def test_a_late_word_about_another_life_of_the_id_changes_nothing() -> None:
    bench = ready_bench()
    request_id, port = bench.ask("hi", max_tokens=3)
    (request,) = bench.admitted()
    for epoch in (request.epoch - 1, request.epoch + 1, -1):
        bench.send("large", emit(request_id, 0, 9, model=LARGE).replaced(epoch=epoch))
        bench.send("large", close(request_id, 1).replaced(epoch=epoch))
    bench.turn(1.0)
    assert (port.pieces, bench.loop.snapshot().stale_messages) == ([], 6)
    bench.send("small", emit(request_id, 0, 0, 1, 2), close(request_id, 3))
    bench.turn()
    assert (port.text, port.finish.reason) == ("abc", Reason.LENGTH)


def test_each_admission_is_a_life_of_its_own() -> None:
    bench = ready_bench()
    bench.ask()
    bench.ask()
    first, second = bench.admitted()
    assert first.epoch != second.epoch and first.request_id != second.request_id
