"""What both transports promise: order, no blocking, no start order, waking, and a clean end."""

from __future__ import annotations

import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from python_backend.transport.base import Frames, HandoffTransport, Peer
from python_backend.transport.directory import open_run_dir
from python_backend.transport.keyring import read_keyring, write_keys
from python_backend.transport.letters import packed
from python_backend.transport.loopback_transport import LoopbackNetwork
from python_backend.transport.unix_transport import READ_BYTES, UnixTransport
from python_backend.transport.wiring import TcpWiring
from python_backend.transport.zmq_transport import POLL_MAX, ZmqTransport
from router_backend.core.errors import ConfigError
from tests.free_ports import free_addresses

Maker = Callable[[str], HandoffTransport]
BOUND_S = 20.0


SOCKETS = {"unix": UnixTransport, "zmq": ZmqTransport}
Socketed = type[UnixTransport] | type[ZmqTransport]


@pytest.fixture(params=SOCKETS)
def kind(request: pytest.FixtureRequest) -> Socketed:
    return SOCKETS[request.param]


@pytest.fixture(params=[*SOCKETS, "tcp", "curve", "loopback"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Maker]:
    network, folder, made = LoopbackNetwork(), open_run_dir(tmp_path / "run"), []
    names = ("small", "large", "a", "b", "c")
    addresses, keys = free_addresses(names), tmp_path / "keys"
    write_keys(keys, names)
    makers: dict[str, Maker] = {
        "unix": lambda name: UnixTransport(folder, name),
        "zmq": lambda name: ZmqTransport(folder, name),
        "tcp": lambda name: ZmqTransport(TcpWiring(addresses), name),
        "curve": lambda name: ZmqTransport(TcpWiring(addresses, read_keyring(keys, name)), name),
        "loopback": network.endpoint,
    }

    def maker(name: str) -> HandoffTransport:
        made.append(makers[request.param](name))
        return made[-1]

    yield maker
    for transport in made:
        transport.close()


def collect(
    transport: HandoffTransport, count: int, *senders: HandoffTransport
) -> list[tuple[Peer, list[bytes]]]:
    """The next `count` messages, while the `senders` poll as their owners do; fails after a bound."""
    arrived: list[tuple[Peer, Frames]] = []
    give_up = time.monotonic() + BOUND_S
    while len(arrived) < count and time.monotonic() < give_up:
        arrived += transport.poll(0.01)
        for sender in senders:
            assert sender.poll(0.0) == []
    return [(peer, list(frames)) for peer, frames in arrived]


def test_frames_arrive_in_order_with_the_name_of_their_sender(make: Maker) -> None:
    small, large = make("small"), make("large")

    for number in range(1000):
        assert small.post(Peer("large"), [b"head", str(number).encode()])

    wanted = [("small", [b"head", str(number).encode()]) for number in range(1000)]
    assert collect(large, 1000, small) == wanted


def test_what_is_posted_before_the_receiver_exists_waits_for_it(make: Maker) -> None:
    small = make("small")
    assert small.post(Peer("large"), [b"early"])

    large = make("large")

    assert collect(large, 1, small) == [("small", [b"early"])]


def test_several_senders_reach_one_receiver(make: Maker) -> None:
    large = make("large")
    senders = {name: make(name) for name in ("a", "b", "c")}

    for name, sender in senders.items():
        sender.post(Peer("large"), [name.encode()])

    assert sorted(collect(large, 3)) == [("a", [b"a"]), ("b", [b"b"]), ("c", [b"c"])]


def test_a_message_of_ten_megabytes_passes_whole(make: Maker) -> None:
    small, large = make("small"), make("large")
    body = bytes(range(256)) * 40_000

    small.post(Peer("large"), [b"", body])

    assert collect(large, 1, small) == [("small", [b"", body])]


def test_a_poll_without_frames_returns_after_its_time(make: Maker) -> None:
    small = make("small")

    assert small.poll(0.0) == []
    assert small.poll(0.01) == []


def test_wake_ends_a_poll_from_another_thread(make: Maker) -> None:
    small = make("small")
    waiting, arrived = threading.Event(), []

    def poll() -> None:
        waiting.set()
        arrived.append(small.poll(BOUND_S * 10))

    thread = threading.Thread(target=poll)
    thread.start()
    assert waiting.wait(BOUND_S)
    small.wake()
    thread.join(BOUND_S)

    assert not thread.is_alive()
    assert arrived == [[]]


def test_a_wake_before_the_poll_is_not_lost_and_counts_once(make: Maker) -> None:
    small = make("small")
    small.wake()
    small.wake()
    started_at = time.monotonic()

    assert small.poll(BOUND_S * 10) == []
    assert time.monotonic() - started_at < BOUND_S
    assert small.poll(0.01) == []


def test_a_full_queue_is_an_answer_and_never_a_wait(kind: Socketed, tmp_path: Path) -> None:
    network = LoopbackNetwork(queue_max=2)
    looped = network.endpoint("small")
    sent = [looped.post(Peer("large"), [b"x"]) for _ in range(3)]
    socketed = kind(open_run_dir(tmp_path / "run"), "small", queue_max=2)
    queued = [socketed.post(Peer("nobody"), [b"x"]) for _ in range(3)]
    socketed.close()

    assert sent == queued == [True, True, False]


def test_a_peer_whose_name_cannot_be_a_socket_is_unknown(kind: Socketed, tmp_path: Path) -> None:
    small = kind(open_run_dir(tmp_path / "run"), "small")

    assert small.post(Peer("../../etc/passwd"), [b"x"]) is False
    small.close()


def test_one_poll_hands_out_a_bounded_number_of_messages(kind: Socketed, tmp_path: Path) -> None:
    folder = open_run_dir(tmp_path / "run")
    small, large = kind(folder, "small"), kind(folder, "large")
    letter = [b"x" * 80]
    count = POLL_MAX + READ_BYTES // len(packed(letter))
    for _ in range(count):
        small.post(Peer("large"), letter)
    sizes: list[int] = []
    give_up = time.monotonic() + BOUND_S
    while sum(sizes) < count and time.monotonic() < give_up:
        small.poll(0.0)
        sizes.append(len(large.poll(0.01)))
    small.close()
    large.close()

    assert sum(sizes) == count
    assert max(sizes) < count


def test_the_socket_file_is_private_and_goes_when_the_transport_closes(
    kind: Socketed, tmp_path: Path
) -> None:
    folder = open_run_dir(tmp_path / "run")
    small = kind(folder, "small")
    mode = stat.S_IMODE((folder / "small.ipc").stat().st_mode)
    small.close()

    assert mode == 0o600
    assert list(folder.iterdir()) == []


def test_a_stale_socket_file_does_not_stop_a_start(kind: Socketed, tmp_path: Path) -> None:
    folder = open_run_dir(tmp_path / "run")
    (folder / "large.ipc").write_bytes(b"left by a process that was killed")
    small, large = kind(folder, "small"), kind(folder, "large")
    small.post(Peer("large"), [b"x"])

    assert collect(large, 1, small) == [("small", [b"x"])]
    small.close()
    large.close()


def test_a_process_that_ends_late_leaves_its_successor_reachable(tmp_path: Path) -> None:
    """A model that is loaded again may start before its former process has ended."""
    folder = open_run_dir(tmp_path / "run")
    former = UnixTransport(folder, "large")
    successor = UnixTransport(folder, "large")
    former.close()
    small = UnixTransport(folder, "small")
    small.post(Peer("large"), [b"x"])
    heard = collect(successor, 1, small)
    successor.close()
    small.close()

    assert heard == [("small", [b"x"])]
    assert list(folder.iterdir()) == []


def test_a_folder_that_does_not_exist_is_named(kind: Socketed, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot bind .*gone/small.ipc: No such file"):
        kind(tmp_path / "gone", "small")


def test_a_peer_that_comes_back_receives_again(kind: Socketed, tmp_path: Path) -> None:
    folder = open_run_dir(tmp_path / "run")
    small, first = kind(folder, "small"), kind(folder, "large")
    small.post(Peer("large"), [b"1"])
    before = collect(first, 1)
    first.close()
    second = kind(folder, "large")
    after: list[tuple[Peer, Frames]] = []
    give_up = time.monotonic() + BOUND_S
    while not after and time.monotonic() < give_up:
        small.post(Peer("large"), [b"2"])
        small.poll(0.0)
        after = second.poll(0.05)
    small.close()
    second.close()

    assert before == [("small", [b"1"])]
    assert after[0] == ("small", [b"2"])


def test_a_frame_over_the_limit_never_arrives_and_its_sender_is_heard_again(
    kind: Socketed, tmp_path: Path
) -> None:
    folder = open_run_dir(tmp_path / "run")
    small, large = kind(folder, "small"), kind(folder, "large", frame_bytes_max=100)
    small.post(Peer("large"), [b"x" * 100])
    arrived = collect(large, 1)
    small.post(Peer("large"), [b"x" * 101])
    give_up = time.monotonic() + BOUND_S
    while len(arrived) < 2 and time.monotonic() < give_up:
        small.post(Peer("large"), [b"again"])
        small.poll(0.0)
        arrived += [(peer, list(frames)) for peer, frames in large.poll(0.05)]
    small.close()
    large.close()

    assert arrived[:2] == [("small", [b"x" * 100]), ("small", [b"again"])]


def test_a_peer_that_does_not_read_gets_everything_in_order_once_it_does(tmp_path: Path) -> None:
    folder = open_run_dir(tmp_path / "run")
    small, large = UnixTransport(folder, "small"), UnixTransport(folder, "large")
    bodies = [bytes([number]) * 100_000 for number in range(20)]
    for body in bodies:
        assert small.post(Peer("large"), [body])

    assert collect(large, 20, small) == [("small", [body]) for body in bodies]
    small.close()
    large.close()


def test_half_a_letter_that_died_with_its_reader_is_sent_again_as_a_whole(tmp_path: Path) -> None:
    folder = open_run_dir(tmp_path / "run")
    small, first = UnixTransport(folder, "small"), UnixTransport(folder, "large")
    small.post(Peer("large"), [b"x" * 1_000_000])
    first.poll(0.0)
    first.close()
    second = UnixTransport(folder, "large")

    assert collect(second, 1, small) == [("small", [b"x" * 1_000_000])]
    small.close()
    second.close()


def test_what_was_posted_to_a_dead_endpoint_is_taken_back() -> None:
    network = LoopbackNetwork()
    small, other = network.endpoint("small"), network.endpoint("other")
    small.post(Peer("large"), [b"stale"])
    other.post(Peer("large"), [b"stays"])
    small.forget(Peer("large"))

    assert (network.endpoint("large").poll(0.0), small.refused) == ([("other", [b"stays"])], 0)


def test_what_was_queued_for_a_dead_peer_does_not_reach_its_successor(
    kind: Socketed, tmp_path: Path
) -> None:
    folder = open_run_dir(tmp_path / "run")
    small = kind(folder, "small")
    small.post(Peer("large"), [b"for the dead"])
    small.forget(Peer("large"))
    small.forget(Peer("large"))
    large = kind(folder, "large")
    small.post(Peer("large"), [b"for the living"])

    assert (collect(large, 1, small), small.refused) == ([("small", [b"for the living"])], 0)
    small.close()
    large.close()


def test_a_cut_endpoint_neither_hears_nor_is_heard_until_it_is_mended() -> None:
    network = LoopbackNetwork()
    small, large = network.endpoint("small"), network.endpoint("large")
    network.cut("large")
    small.post(Peer("large"), [b"lost"])
    large.post(Peer("small"), [b"lost"])
    network.mend("large")
    small.post(Peer("large"), [b"heard"])

    assert small.poll(0.0) == []
    assert large.poll(0.0) == [("small", [b"heard"])]
