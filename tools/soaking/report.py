"""What a soak found: verdicts with the bound of each, as a table and as one JSON object. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tools.soaking.faults import RECOVERY_S_MAX, Fault, Strike
from tools.soaking.memory import MIB, Look, Phases, phases, rss_bound, shm_bound
from tools.soaking.outcomes import Failure, Fate, Tally

END_S_MAX = 10.0
"""What the server may take to end when no client is left: less than Triton's exit time-out."""
AFTER_S = 5.0
"""A request may be told of a fault so long after the model answered again: a rejoined model is heard first
by one door, then by the other."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """KV blocks of one model when nothing runs any more."""

    free: int
    cached: int
    total: int


@dataclass(frozen=True, slots=True)
class Rest:
    """What was left when all clients had gone."""

    blocks: Mapping[str, Blocks]
    under_way: int
    """Requests that a door or a model still holds."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What was asked for."""

    seconds: float
    clients: int
    on_peer_loss: str
    seed: int
    faults: Sequence[Fault]
    questions: int
    unsteady: int
    """Questions left out because their text differed without any fault."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that was seen."""

    setup: Setup
    tally: Tally
    strikes: Sequence[Strike]
    looks: Sequence[Look]
    rest: Rest
    supervisor: Sequence[tuple[float, str]] = field(default_factory=tuple)
    """Lines of the supervisor, by seconds since the load began."""
    end_s: float = 0.0
    """How long the server took to end."""


@dataclass(frozen=True, slots=True)
class Verdict:
    what: str
    holds: bool
    found: str


def verdicts(findings: Findings) -> list[Verdict]:
    """Every one must hold."""
    tally = findings.tally
    ended_wrongly = tally.total(Fate.TWICE) + tally.total(Fate.WITHOUT_END)
    wrong = tally.total(Fate.WRONG)
    stray = [failure for failure in tally.failures if not is_near(failure, findings.strikes)]
    made, planned = len(findings.strikes), len(findings.setup.faults)
    return [
        Verdict("every request ends exactly once", ended_wrongly == 0, f"{ended_wrongly} do not"),
        Verdict("every text is right", wrong == 0, f"{wrong} are not"),
        Verdict("failures are told of around faults only", not stray, f"{len(stray)} elsewhere"),
        Verdict("requests were answered", tally.total(Fate.RIGHT) > 0, f"{tally.total(Fate.RIGHT)} right"),
        Verdict("every planned fault was made", made == planned, f"{made} of {planned}"),
        _recovery(findings.strikes),
        *_flatness(findings),
        *(_conserved(name, blocks) for name, blocks in findings.rest.blocks.items()),
        Verdict(
            "nothing is under way at the end", findings.rest.under_way == 0, str(findings.rest.under_way)
        ),
        Verdict(
            f"the server ends within {END_S_MAX:g} s",
            findings.end_s <= END_S_MAX,
            f"{findings.end_s:.1f} s",
        ),
    ]


def is_near(failure: Failure, strikes: Sequence[Strike]) -> bool:
    """Whether the request ran at some time between a fault and a little after the recovery from it."""
    return any(failure.ended_s >= one.at_s and failure.asked_s <= one.until_s + AFTER_S for one in strikes)


def _recovery(strikes: Sequence[Strike]) -> Verdict:
    longest = max((_lasting(one) for one in strikes), default=0.0)
    found = f"at most {longest:.1f} s" if longest < float("inf") else "a model did not come back"
    return Verdict(
        f"a struck model answers again within {RECOVERY_S_MAX:g} s", longest <= RECOVERY_S_MAX, found
    )


def _lasting(strike: Strike) -> float:
    return float("inf") if strike.recovered_s is None else strike.recovered_s


def memory(findings: Findings) -> dict[str, Phases]:
    """Resident and shared bytes at the start, in the middle and at the end."""
    looks, seconds = findings.looks, findings.setup.seconds
    return {
        "rss": phases(looks, [one.rss for one in looks], seconds),
        "shm": phases(looks, [one.shm for one in looks], seconds),
    }


def _flatness(findings: Findings) -> list[Verdict]:
    found = memory(findings)
    bounds = {"rss": rss_bound(found["rss"]), "shm": shm_bound(found["shm"])}
    names = {"rss": "resident memory", "shm": "shared memory"}
    return [
        Verdict(
            f"{names[kind]} is flat (end at most {_mib(bounds[kind])})",
            found[kind].end <= bounds[kind],
            f"{_mib(found[kind].start)}, {_mib(found[kind].middle)}, {_mib(found[kind].end)}",
        )
        for kind in found
    ]


def _conserved(name: str, blocks: Blocks) -> Verdict:
    return Verdict(
        f"{name}: free + cached = {blocks.total} KV blocks",
        blocks.free + blocks.cached == blocks.total,
        f"{blocks.free} + {blocks.cached}",
    )


def _mib(number: int) -> str:
    return f"{number / MIB:.1f} MiB"


def as_json(findings: Findings) -> dict[str, Any]:
    tally = findings.tally
    return {
        "setup": asdict(findings.setup) | {"faults": len(findings.setup.faults)},
        "requests": {fate.value: tally.total(fate) for fate in Fate} | {"all": tally.requests},
        "by_way": {way: {fate.value: counts[fate] for fate in Fate} for way, counts in _ways(tally)},
        "codes": codes(tally),
        "strikes": [asdict(one) | {"kind": one.kind.value} for one in findings.strikes],
        "memory": {kind: asdict(found) for kind, found in memory(findings).items()},
        "blocks": {name: asdict(found) for name, found in findings.rest.blocks.items()},
        "end_s": findings.end_s,
        "supervisor": [{"at_s": at_s, "said": line} for at_s, line in findings.supervisor],
        "wrong": [_plain(asdict(one)) for one in tally.wrong],
        "verdicts": [asdict(one) for one in verdicts(findings)],
    }


def _plain(wrong: dict[str, Any]) -> dict[str, Any]:
    return wrong | {"asked": wrong["asked"] | {"way": wrong["asked"]["way"].value}}


def codes(tally: Tally) -> dict[str, int]:
    """How often each code was told, by code."""
    found = sorted(failure.code for failure in tally.failures)
    return {code: found.count(code) for code in dict.fromkeys(found)}


def _ways(tally: Tally) -> list[tuple[str, Any]]:
    return sorted(tally.by_way.items())


def as_text(findings: Findings) -> str:
    """Requests by way and fate, faults, verdicts, and what is known of wrong requests."""
    setup, tally = findings.setup, findings.tally
    head = f"{'requests':<28}" + "".join(f"{fate.value:>13}" for fate in Fate)
    rows = [f"{way:<28}" + "".join(f"{counts[fate]:>13}" for fate in Fate) for way, counts in _ways(tally)]
    total = f"{'all':<28}" + "".join(f"{tally.total(fate):>13}" for fate in Fate)
    told = ", ".join(f"{code} {count}" for code, count in codes(tally).items()) or "nothing"
    return "\n".join(
        [
            f"{setup.seconds:.0f} s, {setup.clients} clients, {setup.questions} questions ({setup.unsteady} "
            f"left out), on_peer_loss {setup.on_peer_loss}, seed {setup.seed}",
            *("", head, *rows, total, f"told: {told}", ""),
            *map(_strike_line, findings.strikes),
            "",
            *(f"{'holds' if one.holds else 'FAILS':<7}{one.what}: {one.found}" for one in verdicts(findings)),
            *(f"WRONG  {one}" for one in tally.wrong),
        ]
    )


def _strike_line(strike: Strike) -> str:
    back = "did not come back" if strike.recovered_s is None else f"answers after {strike.recovered_s:.1f} s"
    return f"{strike.at_s:7.1f} s  {strike.kind.value:<8} {back}"
