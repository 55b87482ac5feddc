"""What was seen of each answer against what the sequential reference says must be seen.

From outside: tokens, authors, text, ending, counts. On the wire: every hand-off, token for token. In
the figures: what each model sampled, received, looked up and recomputed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tests.contract.demand import Job, Pair
from tests.contract.routed_system import Client, Figures, RoutedSystem
from tests.contract.sequential import Carried, Sequential
from tests.reference import SMALL


@dataclass(frozen=True)
class Outcome:
    """All that can be seen of one answer, from outside and on the wire."""

    tokens: list[int]
    authors: list[int]
    text: str
    reason: str
    discards: int
    handoffs: list[tuple[Carried, tuple[int, ...]]]


def seen(system: RoutedSystem, client: Client) -> Outcome:
    own = [handoff for handoff in system.handoffs if handoff.request_id == client.request_id]
    own.sort(key=lambda handoff: handoff.seq)
    carried = [(Carried(int(one.source), one.base, one.loc), one.token_ids) for one in own]
    end = client.finish
    assert end.handoffs == len(own) and end.output_tokens == len(client.tokens), (end, own)
    return Outcome(
        client.tokens, client.authors, client.text, end.reason.value, end.discarded_tokens, carried
    )


def expected(pair: Pair, job: Job, run: Sequential) -> Outcome:
    answer = run.answer
    whole = [*job.prompt, *answer.tokens]
    handoffs = [(one, tuple(whole[one.base : one.loc])) for one in run.handoffs]
    text = shown_text(pair, run)
    return Outcome(answer.tokens, answer.authors, text, answer.reason, answer.discards, handoffs)


def shown_text(pair: Pair, run: Sequential) -> str:
    """What a client reads: an end token has no text."""
    tokens = run.answer.tokens
    shown = tokens[: -1 if tokens[-1] in pair.referee.eos_ids else None]
    text: str = pair.tokenizer.decode(shown, skip_special_tokens=True)
    return text


def referred(pair: Pair, job: Job, guess: Sequence[int]) -> Sequential:
    return pair.referee.answer(job.prompt, job.max_tokens, job.policy[2], guess)


def cutoff_nats(pair: Pair, job: Job) -> float:
    vocab_size: int = pair.referee.models[SMALL].config.vocab_size
    return job.policy[2].cutoff * math.log(vocab_size)


def check_answers(pair: Pair, system: RoutedSystem, jobs: Sequence[Job], at_once: int) -> list[Sequential]:
    """Every answer is the reference's; returns what the reference did."""
    clients = system.answers([job.ask for job in jobs], at_once)
    runs = []
    for number, (job, client) in enumerate(zip(jobs, clients, strict=True)):
        runs.append(referred(pair, job, client.tokens))
        what = f"request {number}: {job.policy}, {len(job.prompt)} tokens + {job.max_tokens}"
        assert seen(system, client) == expected(pair, job, runs[-1]), what
    return runs


def figures_of(runs: Sequence[Sequential], model: int) -> Figures:
    """What one model must have counted."""
    received = [[one for one in run.handoffs if one.source != model] for run in runs]
    sampled = sum(look.author == model for run in runs for look in run.looks)
    committed = sum(run.answer.authors.count(model) for run in runs)
    first_contacts = 0 if model == SMALL else sum(bool(handoffs) for handoffs in received)
    returns = sum(map(len, received)) - first_contacts
    return {
        "sampled": sampled,
        "committed": committed,
        "discarded": sampled - committed,
        "handoffs_received": sum(map(len, received)),
        "handoff_tokens": sum(one.loc - one.base for handoffs in received for one in handoffs),
        "returns": returns,
        "direct_resumes": returns,
        "recomputes": 0,
        "prefix_lookups": len(runs) if model == SMALL else first_contacts,
        "prefix_lookups_on_return": 0,
        "parked_evictions": 0,
        "forced_keeps": 0,
    }


def check_parking(system: RoutedSystem, runs: Sequence[Sequential]) -> None:
    """Nothing was looked up, recomputed or sent that need not have been, from the first request on."""
    for model, figures in enumerate(settled(system)):
        wanted = figures_of(runs, model)
        assert {name: figures[name] for name in wanted} == wanted


def settled(system: RoutedSystem) -> list[Figures]:
    """Both models' figures at the end: every block is free or cached, and no loop met an error."""
    both = system.settled_figures()
    for subserver, figures in zip(system.subservers, both, strict=True):
        blocks = figures["kv_blocks"]
        assert blocks["free"] + blocks["cached"] == subserver.info.num_blocks, blocks
        assert figures["loop_errors"] == figures["runner_errors"] == figures["messages_malformed"] == 0
    return both
