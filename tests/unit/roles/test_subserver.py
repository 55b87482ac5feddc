"""Two subservers with real threads and real sockets: exact answers, and every way that things end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from python_backend.loops.base import Ask, Finish
from python_backend.loops.decode_loop import BROKEN, UNLOADED
from python_backend.roles import subserver
from python_backend.roles.subserver import build_subserver
from python_backend.runner.base import ModelRunner
from python_backend.runner.scripted_runner import ScriptedRunner
from python_backend.transport.loopback_transport import LoopbackNetwork
from router_backend.core.effects import Reason
from router_backend.core.errors import PeerLostError, RequestError
from router_backend.core.request import PolicySpec, RequestId
from router_backend.handoff.message import Abort, Admit
from router_backend.scheduler.batch import BatchPlan, StepOutput
from tests.unit.roles.pair import (
    ALONE,
    BOUND_S,
    LARGE,
    SMALL,
    Maker,
    Pair,
    Port,
    ask_stitched,
    deployment,
    engine,
    expected_answer,
    loopback_maker,
    open_pair_of,
    until,
    zmq_maker,
)

Opener = Callable[..., Pair]


@pytest.fixture
def network() -> LoopbackNetwork:
    return LoopbackNetwork()


@pytest.fixture(params=["loopback", "zmq"])
def make(request: pytest.FixtureRequest, tmp_path: Path, network: LoopbackNetwork) -> Maker:
    return zmq_maker(tmp_path / "run") if request.param == "zmq" else loopback_maker(network)


@pytest.fixture
def open_pair() -> Iterator[Opener]:
    pairs: list[Pair] = []

    def opener(make: Maker, *runners: ModelRunner, **settings: Any) -> Pair:
        pairs.append(open_pair_of(make, runners or (engine(SMALL, 0), engine(LARGE, 1)), **settings))
        return pairs[-1]

    yield opener
    for pair in pairs:
        pair.stop()


def senders_of_last_beats(pair: Pair, count: int) -> list[str]:
    return [beat.endpoint for beat in pair.home.beats[-count:]]


class Hooked(ScriptedRunner):
    """A scripted engine that calls `hook(plan)` before each step."""

    def __init__(self, runner: ScriptedRunner, hook: Callable[[BatchPlan], None]) -> None:
        self.info = runner.info
        self._inner = runner
        self._hook = hook

    def execute(self, plan: BatchPlan) -> StepOutput:
        self._hook(plan)
        return self._inner.execute(plan)


def test_routed_answers_are_exact_and_every_return_is_a_direct_resume(make: Maker, open_pair: Opener) -> None:
    pair = open_pair(make)
    requests = [ask_stitched(f"r{seed}", seed) for seed in range(12)]
    for request in requests:
        pair.home.tell("small", Admit(request))
    closes = [pair.home.wait_for_close(request.request_id) for request in requests]
    answers = [pair.home.tokens(request.request_id) for request in requests]
    pair.settle()

    small, large = engine(SMALL, 0), engine(LARGE, 1)
    assert answers == [expected_answer(request, small, large) for request in requests]
    assert {(close.reason, close.length) for close in closes} == {(Reason.LENGTH, 40)}
    assert sum(pair.figure("committed")) == 12 * 40
    assert pair.figure("returns") == pair.figure("direct_resumes") != [0, 0]
    assert pair.figure("prefix_lookups_on_return") == pair.figure("loop_errors") == [0, 0]
    assert pair.figure("messages_malformed") == pair.figure("messages_undeliverable") == [0, 0]


def test_commits_of_one_model_arrive_in_order(make: Maker, open_pair: Opener) -> None:
    pair = open_pair(make)
    request = ask_stitched("r", seed=1, policy=ALONE)
    pair.home.tell("small", Admit(request))
    pair.home.wait_for_close(request.request_id)

    assert [emit.position for emit in pair.home.emits[request.request_id]] == list(range(40))


def test_an_abort_frees_both_models_and_closes_once(make: Maker, open_pair: Opener) -> None:
    slow = replace(SMALL, latency_ms=(2.0,)), replace(LARGE, latency_ms=(4.0,))
    pair = open_pair(make, engine(slow[0], 0), engine(slow[1], 1))
    request = ask_stitched("r", seed=3, max_tokens=3000)
    pair.home.tell("small", Admit(request))
    pair.home.listen_until(lambda: len(pair.home.tokens(request.request_id)) > 20, "some tokens")
    for endpoint in ("small", "large", "small"):
        pair.home.tell(endpoint, Abort(request.request_id, 0))
    close = pair.home.wait_for_close(request.request_id)
    pair.settle()

    assert (close.reason, len(pair.home.closes[request.request_id])) == (Reason.CANCELLED, 1)


def test_subservers_tell_the_home_what_their_engine_takes(make: Maker, open_pair: Opener) -> None:
    pair = open_pair(make)
    pair.home.listen_until(lambda: len(set(senders_of_last_beats(pair, 99))) == 2, "beats of both")

    told = {(beat.endpoint, beat.model, beat.vocab_size, beat.capacity_tokens) for beat in pair.home.beats}
    assert told == {
        ("small", 0, 1000, 4096),
        ("large", 1, 1000, 4096),
    }


def test_the_death_of_a_peer_ends_the_requests_it_held_and_no_others(
    network: LoopbackNetwork, open_pair: Opener
) -> None:
    gone = replace(SMALL, uncertain_p=1.0)
    pair = open_pair(loopback_maker(network), engine(gone, 0), engine(LARGE, 1), peer_timeout_s=0.5)
    pair.home.listen_until(lambda: sum(pair.figure("peers_up")) == 2, "both to hear each other")
    network.cut("large")
    parked, alone = ask_stitched("parked", 1), ask_stitched("alone", 2, policy=ALONE)
    pair.home.tell("small", Admit(parked))
    pair.home.tell("small", Admit(alone))
    closes = [pair.home.wait_for_close(request.request_id) for request in (parked, alone)]

    assert [close.reason for close in closes] == [Reason.ERROR, Reason.LENGTH]
    assert closes[0].message.startswith("TR_PEER_LOST: model 1 ")
    pair.home.listen_until(lambda: pair.figure("peers_up")[0] == 0, "the loss to show")
    refused = ask_stitched("refused", 3)
    pair.home.tell("small", Admit(refused))
    assert "TR_PEER_LOST: model 1 is not running" in pair.home.wait_for_close(refused.request_id).message


def test_a_peer_that_comes_back_is_routed_to_again(network: LoopbackNetwork, open_pair: Opener) -> None:
    pair = open_pair(loopback_maker(network), peer_timeout_s=0.5)
    network.cut("large")
    pair.home.listen_until(lambda: pair.figure("peers_up")[0] == 0 and pair.figure("turns")[0], "the loss")
    network.mend("large")
    pair.home.listen_until(lambda: pair.figure("peers_up") == [1, 1], "the return")
    request = ask_stitched("r", 1)
    pair.home.tell("small", Admit(request))
    pair.home.wait_for_close(request.request_id)

    expected = expected_answer(request, engine(SMALL, 0), engine(LARGE, 1))
    assert pair.home.tokens(request.request_id) == expected


def test_the_death_of_a_home_frees_its_requests(network: LoopbackNetwork, open_pair: Opener) -> None:
    slow = replace(SMALL, latency_ms=(2.0,))
    pair = open_pair(loopback_maker(network), engine(slow, 0), engine(LARGE, 1), peer_timeout_s=0.5)
    request = ask_stitched("r", 1, max_tokens=3000)
    pair.home.tell("small", Admit(request))
    pair.home.listen_until(lambda: pair.home.tokens(request.request_id), "a token")
    network.cut("front")

    until(lambda: pair.figure("live") == [0, 0] and pair.figure("parked") == [0, 0], "both to be free")


def test_a_runner_error_ends_its_batch_and_the_next_request_is_served(make: Maker, open_pair: Opener) -> None:
    failing = replace(SMALL, failing_steps=frozenset({1}))
    pair = open_pair(make, engine(failing, 0), engine(LARGE, 1))
    first, second = ask_stitched("first", 1), ask_stitched("second", 2)
    pair.home.tell("small", Admit(first))
    failed = pair.home.wait_for_close(first.request_id)
    pair.home.tell("small", Admit(second))
    served = pair.home.wait_for_close(second.request_id)
    pair.settle()

    assert (failed.reason, failed.message) == (Reason.ERROR, "TR_RUNNER: the script fails step 1")
    assert (served.reason, pair.figure("runner_errors")) == (Reason.LENGTH, [1, 0])
    assert pair.small.is_healthy


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_broken_invariant_closes_everything_silences_the_subserver_and_shuts_its_door(
    make: Maker, open_pair: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    is_broken = threading.Event()

    def break_when_told(plan: BatchPlan) -> None:
        assert not is_broken.is_set(), "a block is nobody's"

    slow = engine(replace(SMALL, latency_ms=(2.0,)), 0)
    pair = open_pair(make, Hooked(slow, break_when_told), engine(LARGE, 1))
    request = ask_stitched("r", 1, max_tokens=3000, policy=ALONE)
    port = Port()
    pair.small.ask(Ask(input_ids=(1, 2), max_tokens=1000), port)
    pair.home.tell("small", Admit(request))
    pair.home.listen_until(lambda: pair.home.tokens(request.request_id), "a token")
    is_broken.set()
    close = pair.home.wait_for_close(request.request_id)
    until(lambda: port.is_finished, "the client's end")
    until(lambda: not pair.small.is_healthy, "the breakdown to show")

    assert (close.reason, close.message) == (Reason.ERROR, f"TR_PEER_LOST: {BROKEN}")
    assert [piece.finish.code for piece in port.pieces if piece.finish] == ["TR_PEER_LOST"]
    assert "small stops serving" in caplog.text
    with pytest.raises(PeerLostError):
        pair.small.ask(Ask(input_ids=(1, 2)), Port())
    pair.home.listen_until(lambda: senders_of_last_beats(pair, 10) == ["large"] * 10, "silence")


def test_the_own_door_answers_with_this_model_alone(make: Maker, open_pair: Opener) -> None:
    pair = open_pair(make)
    ports = [Port(), Port()]
    pair.small.ask(Ask(input_ids=(1, 2), max_tokens=8, seed=5), ports[0])
    pair.large.ask(Ask(input_ids=(1, 2), max_tokens=8, seed=5, is_streaming=True), ports[1])
    until(lambda: all(port.is_finished for port in ports), "both answers")

    answers = [[token for piece in port.pieces for token in piece.token_ids] for port in ports]
    engines = engine(SMALL, 0), engine(LARGE, 1)
    assert answers == [[one.token_at(5, position) for position in range(2, 10)] for one in engines]
    assert ports[0].pieces[-1].finish == Finish(Reason.LENGTH, prompt_tokens=2, output_tokens=8, seed=5)


def test_the_own_door_refuses_and_cancels(open_pair: Opener, network: LoopbackNetwork) -> None:
    slow = replace(SMALL, latency_ms=(2.0,))
    pair = open_pair(loopback_maker(network), engine(slow, 0), engine(LARGE, 1))
    port = Port()
    with pytest.raises(RequestError, match=r"input_ids: 1000 is outside the vocabulary"):
        pair.small.ask(Ask(input_ids=(1000,)), port)
    request_id = pair.small.ask(Ask(input_ids=(1, 2), max_tokens=2000, is_streaming=True), port)
    until(lambda: port.pieces, "a piece")
    pair.small.cancel(request_id)
    pair.small.cancel(RequestId("unknown"))
    until(lambda: port.is_finished, "the end")
    pair.settle()

    assert [piece.finish.reason for piece in port.pieces if piece.finish] == [Reason.CANCELLED]


def test_a_subserver_that_stops_ends_what_is_open(network: LoopbackNetwork, open_pair: Opener) -> None:
    slow = replace(SMALL, latency_ms=(2.0,))
    pair = open_pair(loopback_maker(network), engine(slow, 0), engine(LARGE, 1))
    request = ask_stitched("r", 1, max_tokens=3000, policy=ALONE)
    port = Port()
    pair.home.tell("small", Admit(request))
    pair.small.ask(Ask(input_ids=(1, 2), max_tokens=2000), port)
    pair.home.listen_until(lambda: pair.home.tokens(request.request_id), "a token")
    pair.subservers.pop(0).stop()
    close = pair.home.wait_for_close(request.request_id)

    assert (close.reason, close.message) == (Reason.ERROR, f"TR_PEER_LOST: {UNLOADED}")
    assert [piece.finish.message for piece in port.pieces if piece.finish] == [UNLOADED]


def test_an_engine_that_hangs_does_not_hang_the_stop(
    network: LoopbackNetwork,
    open_pair: Opener,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(subserver, "JOIN_S", 0.01)
    entered, released = threading.Event(), threading.Event()

    def hang(plan: BatchPlan) -> None:
        entered.set()
        released.wait()

    pair = open_pair(loopback_maker(network), Hooked(engine(SMALL, 0), hang), engine(LARGE, 1))
    pair.home.tell("small", Admit(ask_stitched("r", 1)))
    assert entered.wait(BOUND_S)
    pair.small.stop()
    released.set()
    monkeypatch.undo()

    assert "small DecodeLoop does not end" in caplog.text


def test_a_model_that_is_unloaded_ends_what_it_holds_once_and_frees_the_other(
    make: Maker, open_pair: Opener
) -> None:
    slow = replace(LARGE, latency_ms=(2.0,), uncertain_p=1.0)
    pair = open_pair(make, engine(replace(SMALL, uncertain_p=1.0), 0), engine(slow, 1), peer_timeout_s=0.5)
    request = ask_stitched("r", 1, max_tokens=3000)
    pair.home.tell("small", Admit(request))
    pair.home.listen_until(lambda: pair.home.tokens(request.request_id), "a token of the large one")
    pair.subservers.pop().stop()
    close = pair.home.wait_for_close(request.request_id)
    pair.home.listen_until(lambda: pair.figure("peers_up") == [0], "the loss to show")
    pair.settle()

    assert (close.message, len(pair.home.closes[request.request_id])) == (f"TR_PEER_LOST: {UNLOADED}", 1)


def test_a_policy_that_nobody_knows_ends_its_request_and_no_other(
    network: LoopbackNetwork, open_pair: Opener
) -> None:
    pair = open_pair(loopback_maker(network))
    odd, plain = ask_stitched("odd", 1, policy=PolicySpec("magic")), ask_stitched("plain", 2)
    for request in (odd, plain):
        pair.home.tell("small", Admit(request))
    closes = [pair.home.wait_for_close(request.request_id) for request in (odd, plain)]

    assert [close.reason for close in closes] == [Reason.ERROR, Reason.LENGTH]
    assert closes[0].message.startswith("TR_CONFIG: policy: 'magic' is unknown")


def test_a_snapshot_never_changes_and_groups_launches_and_blocks(
    network: LoopbackNetwork, open_pair: Opener
) -> None:
    pair = open_pair(loopback_maker(network))
    until(lambda: pair.small.snapshot(), "the first figures")
    before = pair.small.snapshot()
    request = ask_stitched("r", 1, policy=ALONE)
    pair.home.tell("small", Admit(request))
    pair.home.wait_for_close(request.request_id)
    pair.home.listen_until(lambda: pair.small.snapshot()["committed"] == 40, "the next figures")

    after: Any = pair.small.snapshot()
    assert before["committed"] == 0
    spreads = after["spreads"]
    steps = sum(sum(spreads[name].counts) for name in spreads if name.startswith("step_seconds"))
    assert sum(after["launches"].values()) == steps == after["steps"] == 40
    assert sum(after["kv_blocks"].values()) == 256


def test_the_composition_root_builds_what_the_deployment_says(tmp_path: Path) -> None:
    settings = deployment()
    models = tuple(replace_model(model) for model in settings.models)
    scripted = settings.model_copy(update={"models": models})
    (tmp_path / "script.json").write_text('{"vocab_size": 50}')
    environment = {"TOKEN_ROUTER_RUN_DIR": str(tmp_path / "run")}
    large = build_subserver(scripted, "large", tmp_path, environment)
    large.start()
    sockets = [path.name for path in (tmp_path / "run").iterdir()]
    port = Port()
    large.ask(Ask(input_ids=(1,), max_tokens=3), port)
    until(lambda: port.is_finished, "an answer")
    large.stop()

    assert (sockets, list((tmp_path / "run").iterdir())) == (["large.ipc"], [])
    assert (large.info.vocab_size, large.info.num_blocks) == (50, 256)


def replace_model(model: Any) -> Any:
    return model.model_copy(update={"engine": "scripted", "script": "script.json"})
