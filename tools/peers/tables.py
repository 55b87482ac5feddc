"""The rows of `tools.bench_peers` as tables of Markdown: speed at a glance, one load in detail, the aims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from tools.peers.figures import Row

OURS = ("delayed", "eager_async")
DETAIL_N = 8
Cell = tuple[int, int, int]


def speeds(rows: Sequence[Row]) -> str:
    """Committed tokens per second: a line per system, a column per cell."""
    cells = list(dict.fromkeys(_cell(one) for one in rows))
    heads = [f"n {n}, out {tokens}, ctx {context}" for n, tokens, context in cells]
    found = {one.cell: one for one in rows}
    lines = [[system, *(_number(found.get((system, *cell))) for cell in cells)] for system in _systems(rows)]
    return table(["tok/s", *heads], lines)


def details(rows: Sequence[Row]) -> str:
    """Latency, CPU time and memory at the concurrency nearest to eight."""
    n = min((one.concurrency for one in rows), key=lambda number: (abs(number - DETAIL_N), number))
    heads = ["system", "out", "ctx", "tok/s", "least - most", "answer s", "p50 s", "p99 s", "first token s"]
    heads += ["gap ms", "CPU ms / token", "peak MB", "large share"]
    lines = [_detail(one) for one in rows if one.concurrency == n]
    return f"{n} requests at once:\n\n{table(heads, lines)}"


def _detail(one: Row) -> list[str]:
    return [
        one.system,
        str(one.output_tokens),
        str(one.context),
        f"{one.throughput:.0f}",
        f"{one.throughput_least:.0f} - {one.throughput_most:.0f}",
        f"{one.latency_mean_s:.2f}",
        _maybe(one.latency_p50_s, 2),
        _maybe(one.latency_p99_s, 2),
        _maybe(one.ttft_p50_s, 3),
        _maybe(one.gap_p50_ms, 1),
        f"{1000 * one.cpu_s_per_token:.2f}",
        f"{one.peak_rss_mb:.0f}",
        f"{one.large_share:.0%}",
    ]


def processes(rows: Sequence[Row]) -> str:
    """Milliseconds of CPU time per committed token by process; `client` is the load, and the dispatcher."""
    names = list(dict.fromkeys(name for one in rows for name in one.cpu_s_per_token_by_process))
    lines = [
        [one.system, *map(str, _cell(one))]
        + [_maybe(_ms(one.cpu_s_per_token_by_process.get(name)), 3) for name in names]
        for one in rows
    ]
    return table(["CPU ms / token", "n", "out", "ctx", *names], lines)


def ratios(rows: Sequence[Row]) -> str:
    """Our modes over each other system in every cell that both have."""
    found = {one.cell: one for one in rows}
    others = [system for system in _systems(rows) if system not in OURS]
    lines: list[list[str]] = []
    for mode in OURS:
        for cell in dict.fromkeys(_cell(one) for one in rows if one.system == mode):
            ratio = [_ratio(found[(mode, *cell)], found.get((other, *cell))) for other in others]
            lines.append([mode, *map(str, cell), *ratio])
    return table(["times as fast as", "n", "out", "ctx", *others], lines) if lines and others else ""


def losses(rows: Sequence[Row]) -> str:
    """What part of its throughput a system keeps when answers grow from 512 to 2,048 tokens."""
    found = {one.cell: one for one in rows}
    lines = [
        [one.system, str(one.concurrency), str(one.context), f"{long.throughput / one.throughput:.0%}"]
        for one in rows
        if one.output_tokens == 512 and (long := found.get((one.system, one.concurrency, 2048, one.context)))
    ]
    return table(["kept at 2,048 tokens of what it had at 512", "n", "ctx", "share"], lines) if lines else ""


def attention(rows: Sequence[Row]) -> str:
    """CPU time by context, and how much of it the thin twin of the models does not need."""
    found = {one.cell: one for one in rows}
    pairs = [
        (one, thin)
        for one in rows
        if one.system == "eager_async" and (thin := found.get(("thin_attention", *_cell(one))))
    ]
    heads = ["context", "CPU ms / token", "attention", "the rest", "the rest grows by"]
    lines = [
        [
            str(one.context),
            f"{1000 * one.cpu_s_per_token:.3f}",
            f"{1000 * (one.cpu_s_per_token - thin.cpu_s_per_token):.3f}",
            f"{1000 * thin.cpu_s_per_token:.3f}",
            f"{thin.cpu_s_per_token / pairs[0][1].cpu_s_per_token - 1:+.0%}",
        ]
        for one, thin in pairs
    ]
    return table(heads, lines) if lines else ""


def growth(exponents: Iterable[dict[str, object]]) -> str:
    """Exponents by system and axis."""
    found = {(str(one["system"]), str(one["axis"])): float(str(one["exponent"])) for one in exponents}
    axes = list(dict.fromkeys(axis for _, axis in found))
    lines = [
        [system, *(_maybe(found.get((system, axis)), 2) for axis in axes)]
        for system in dict.fromkeys(system for system, _ in found)
    ]
    return table(["time of a token grows as axis to the power of", *axes], lines) if lines else ""


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Markdown; all columns but the first to the right."""
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(_line(cells) for cells in (heads, rule, *lines))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |" if cells[0] != "---" else f"|{'|'.join(cells)}|"


def _systems(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(one.system for one in rows))


def _cell(one: Row) -> Cell:
    return one.concurrency, one.output_tokens, one.context


def _number(one: Row | None) -> str:
    return "-" if one is None else f"{one.throughput:.0f}"


def _ratio(one: Row, other: Row | None) -> str:
    return "-" if other is None else f"{one.throughput / other.throughput:.1f}"


def _maybe(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


EVERY = (speeds, ratios, losses, details, processes)
SECTIONS: Mapping[str, tuple[Callable[[Sequence[Row]], str], ...]] = MappingProxyType(
    {
        "peers": EVERY,
        "contexts": (speeds, ratios, details),
        "growth": (speeds,),
        "cpu": (attention, processes),
    }
)
"""What each set of `tools.bench_peers` shows."""
