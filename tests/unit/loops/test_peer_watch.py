"""Who is alive, told from signs of life and times."""

from __future__ import annotations

from python_backend.loops.peer_watch import News, PeerWatch


def watch_until(watch: PeerWatch, until: float, start: float = 0.0) -> list[tuple[float, str]]:
    """Judges every half second and loses whom the watch names: (time, name)."""
    lost, now = [], start
    while now < until:
        now += 0.5
        for name in watch.judge(now):
            watch.lose(name)
            lost.append((now, name))
    return lost


def test_a_peer_that_was_never_heard_is_lost_once_after_the_limit() -> None:
    watch = PeerWatch(("small", "large"), 2.0, now=0.0)

    assert watch_until(watch, 10.0) == [(2.5, "small"), (2.5, "large")]


def test_a_peer_that_beats_stays_up() -> None:
    watch = PeerWatch(("large",), 2.0, now=0.0)
    lost = []
    for beat in range(20):
        watch.hear("large", beat * 1.0, instance=1)
        lost += watch.judge(beat * 1.0 + 0.5)

    assert (lost, watch.is_up("large"), watch.up(("large", "nobody"))) == ([], True, 1)


def test_the_limit_counts_from_the_last_sign_of_life() -> None:
    watch = PeerWatch(("large",), 2.0, now=0.0)
    first = watch_until(watch, 1.5)
    watch.hear("large", 1.5)

    assert (first, watch_until(watch, 9.0, start=1.5)) == ([], [(4.0, "large")])


def test_a_lost_peer_that_speaks_is_back() -> None:
    watch = PeerWatch(("large",), 2.0, now=0.0)
    watch.lose("large")

    assert (watch.is_up("large"), watch.names) == (False, ("large",))
    assert [watch.hear("large", 5.0, 1), watch.hear("large", 5.1, 1)] == [News.BACK, News.NOTHING]
    assert watch.is_up("large")


def test_another_instance_under_the_same_name_is_a_restart() -> None:
    watch = PeerWatch(("large",), 2.0, now=0.0)
    news = [watch.hear("large", 0.1, 1), watch.hear("large", 0.2, 1), watch.hear("large", 0.3, 2)]

    assert news == [News.NOTHING, News.NOTHING, News.RESTARTED]
    assert watch.hear("large", 0.4, 2) is News.NOTHING


def test_messages_without_an_instance_say_nothing_about_a_restart() -> None:
    watch = PeerWatch(("large",), 2.0, now=0.0)
    news = [watch.hear("large", 0.1, 1), watch.hear("large", 0.2), watch.hear("large", 0.3, 1)]

    assert news == [News.NOTHING] * 3


def test_a_home_is_known_from_its_first_word_and_forgotten_when_lost() -> None:
    watch = PeerWatch(("large",), 2.0, now=0.0)
    news = watch.hear("front", 0.0, 7)
    known = watch.names
    watch.lose("front")

    assert (news, known) == (News.BACK, ("large", "front"))
    assert (watch.names, watch.is_up("front")) == (("large",), False)
    assert watch.hear("front", 9.0, 8) is News.BACK


def test_a_watcher_that_was_stopped_itself_gives_everybody_time_to_speak() -> None:
    watch = PeerWatch(("large",), 2.0, now=0.0)
    watch.judge(0.5)

    assert watch.judge(60.0) == []
    assert watch_until(watch, 70.0, start=60.0) == [(61.5, "large")]
