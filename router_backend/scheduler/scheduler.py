"""The scheduler of one model: what runs next, and what follows from it.

Reads no clock and performs nothing: time is an argument, and everything to be done comes back as
effects. `plan` reserves every block it promises, so `apply` cannot fail for lack of one. Every request
that was admitted, refused or handed to this model ends in exactly one `Close`, by whoever holds the
right to append.
"""

from __future__ import annotations

from router_backend.core.effects import Effect, Reason, Send
from router_backend.core.errors import ConfigError, RemoteProtocolError
from router_backend.core.replicas import ReplicaIndex
from router_backend.core.request import Request, RequestId
from router_backend.core.sequence import Sequence
from router_backend.core.state import Event, State
from router_backend.handoff.codec import Message
from router_backend.handoff.message import Abort, Admit, Go, Handoff, Report, Thresholds
from router_backend.policies.registry import PolicyBook
from router_backend.scheduler.arrivals import Arrivals
from router_backend.scheduler.batch import BatchPlan, Hold, Launch, LaunchReason, StepOutput
from router_backend.scheduler.counters import Counters
from router_backend.scheduler.gate import BatchGate
from router_backend.scheduler.outcome import Outcome
from router_backend.scheduler.roster import Roster
from router_backend.scheduler.rounds import LEADER
from router_backend.scheduler.rows import RowBuilder
from router_backend.scheduler.settings import SchedulerSettings
from router_backend.scheduler.settlement import Settlement
from router_backend.scheduler.turns import Turns


class Scheduler:
    """See the module. One thread owns it."""

    def __init__(self, settings: SchedulerSettings, policies: PolicyBook) -> None:
        self.settings = settings
        self.roster = Roster(settings)
        thresholds = settings.mode.in_force(settings.thresholds)
        self.gate = BatchGate(
            settings.model,
            thresholds,
            settings.batch_max,
            settings.deadline_s,
            settings.replicas,
            settings.subserver,
        )
        self._arrivals = Arrivals(self.roster, policies)
        self._rows = RowBuilder(self.roster)
        self._turns = Turns(self.roster)
        self._settlement = Settlement(settings, self.roster.counters)
        self._down: set[ReplicaIndex] = set()
        self._held_at: float | None = None
        """Since when the gate holds what is ready."""
        self._step = 0

    @property
    def counters(self) -> Counters:
        return self.roster.counters

    def on(self, message: Message, now: float) -> list[Effect]:
        """Whatever a home or a peer says; RemoteProtocolError for what it must not say."""
        match message:
            case Go():
                return self._turns.go()
            case Report():
                return self._turns.hear(message)
            case Thresholds():
                self._take(message, now)
                return []
        were_ready = len(self.roster.queues.ready)
        effects = self._arrivals.on(message, now)
        return effects + self._turns.note_arrivals(were_ready)

    def admit(self, request: Request, now: float) -> list[Effect]:
        """Take a new request, or refuse it with the reason in its `Close`."""
        return self.on(Admit(request), now)

    def resume(self, handoff: Handoff, now: float) -> list[Effect]:
        """Take control of a request: append what was missed, queue up. Nothing else."""
        return self.on(handoff, now)

    def abort(self, request_id: RequestId, epoch: int = 0) -> list[Effect]:
        """The home lost interest. Idempotent."""
        effects = self._arrivals.abort(Abort(request_id, epoch))
        return effects + self._turns.note_arrivals(len(self.roster.queues.ready))

    def plan(self, now: float) -> BatchPlan | Hold:
        """The next batch with its blocks reserved, or how long to wait for one."""
        self.gate.expire(now)
        if not self.roster.queues.ready:
            self._held_at = None
            return Hold()
        decision = self._decide(now)
        if isinstance(decision, Hold):
            self._held_at = now if self._held_at is None else self._held_at
            return decision
        rows, needs = self._rows.build()
        self._step += 1
        plan = BatchPlan(self._step, rows, needs, decision.reason)
        self._count_launch(plan)
        self._note_launch(plan, now)
        return plan

    def apply(self, plan: BatchPlan, output: StepOutput, now: float) -> list[Effect]:
        """Commit, route, hand off and finish what the step produced."""
        roster = self.roster
        sampled: list[Sequence] = []
        picked: list[int] = []
        unfinished: list[Sequence] = []
        entry = -1
        for row in plan.rows:
            entry += row.is_sampling
            sequence = roster.queues.executing.pop(row.key)
            if sequence.state is State.FINISHED:
                roster.kv.release(sequence)
                continue
            sequence.num_computed = row.end
            roster.kv.publish_computed(sequence)
            if row.is_sampling:
                sequence.ready_at = now
                sampled.append(sequence)
                picked.append(entry)
            else:
                unfinished.append(sequence)
        roster.queues.put_back(unfinished)
        effects = self._settle(sampled, picked, output, now) if sampled else []
        return effects + self._turns.end_step(effects)

    def fail(self, plan: BatchPlan, message: str) -> list[Effect]:
        """The runner failed on this batch: its requests end with an error, nobody else's."""
        effects: list[Effect] = []
        for row in plan.rows:
            sequence = self.roster.queues.executing.pop(row.key)
            if sequence.state is State.FINISHED:
                self.roster.kv.release(sequence)
            else:
                effects += self.roster.finish(sequence, Event.STOPPED, Reason.ERROR, message)
        return effects + self._turns.end_step(effects)

    def lose_peer(self, peer: ReplicaIndex) -> list[Effect]:
        """Subserver `peer` is gone: what was handed to it ends with an error, and nothing more goes there."""
        self._down.add(peer)
        if peer == ReplicaIndex(LEADER):
            self.gate.forget()
        model = self.roster.placement.replicas.models[peer]
        parked = self.roster.queues.parked.values()
        message = f"TR_PEER_LOST: model {model} stopped while it held the request; send it again"
        effects: list[Effect] = []
        for sequence in [sequence for sequence in parked if sequence.owner == peer]:
            effects += self.roster.finish(sequence, Event.STOPPED, Reason.ERROR, message)
        self.roster.forget_live_of(peer)
        return effects + self._turns.lose(model)

    def restore_peer(self, peer: ReplicaIndex) -> None:
        """Subserver `peer` is there (again)."""
        self._down.discard(peer)

    def lose_home(self, home: str) -> list[Effect]:
        """The process that owned the clients is gone: nobody waits for these requests any more."""
        effects: list[Effect] = []
        for sequence in [sequence for sequence in self.roster.queues if sequence.request.home == home]:
            effects += self.abort(sequence.request_id, sequence.request.epoch)
        return effects

    def gauges(self) -> dict[str, int]:
        """Numbers of this moment: sequences by place, KV blocks by owner, live requests."""
        queues, pool, live = self.roster.queues, self.roster.kv.pool, max(1, len(self.roster.live))
        parked = sum(len(sequence.blocks) for sequence in queues.parked.values())
        return {
            "ready": len(queues.ready),
            "executing": len(queues.executing),
            "parked": len(queues.parked),
            "live": len(self.roster.live),
            "held": sum(sequence.held for sequence in queues),
            "kv_free": pool.num_free,
            "kv_cached": pool.num_cached,
            "kv_parked": parked,
            "kv_running": max(0, pool.num_held - parked),
            "draining": sum(held.state is State.FINISHED for held in queues.executing.values()),
            "threshold": self.gate.threshold(live),
            "threshold_feasible": int(self.gate.is_feasible(live)),
        }

    def check_integrity(self) -> None:
        """Raise AssertionError unless all blocks and all sampled tokens are accounted for."""
        self.roster.kv.check_integrity(self.roster.queues)
        counters = self.counters
        held = sum(sequence.held for sequence in self.roster.queues)
        assert counters.sampled == counters.committed + counters.discarded + held, (counters, held)

    def _take(self, message: Thresholds, now: float) -> None:
        """Thresholds from the leader, or RemoteProtocolError when they are not for these models."""
        self._arrivals.bounds.check_thresholds(message)
        before = self.gate.table
        try:
            self.gate.use(message.table, now + message.lasts_s)
        except ConfigError as error:
            raise RemoteProtocolError(str(error)) from error
        self.counters.threshold_changes += message.table != before

    def _decide(self, now: float) -> Launch | Hold:
        if self._turns.is_barrier:
            return Launch(LaunchReason.BARRIER) if self._turns.may_run else Hold()
        queues = self.roster.queues
        ready = len(queues.ready)
        live = max(len(self.roster.live), ready)
        coming = None if self.roster.placement.is_single else self.roster.num_coming
        return self.gate.decide(ready=ready, live=live, oldest_at=queues.oldest_at, now=now, coming=coming)

    def _count_launch(self, plan: BatchPlan) -> None:
        counters = self.counters
        counters.steps += 1
        counters.launches[plan.reason] += 1
        counters.batch_rows += len(plan.rows)
        counters.batch_tokens += plan.num_tokens

    def _note_launch(self, plan: BatchPlan, now: float) -> None:
        spreads, executing = self.roster.spreads, self.roster.queues.executing
        spreads.batch_rows.observe(len(plan.rows))
        spreads.batch_tokens.observe(plan.num_tokens)
        spreads.delay_s.observe(0.0 if self._held_at is None else now - self._held_at)
        self._held_at = None
        launched = zip(plan.rows, executing.values(), strict=True)
        spreads.note_waits((sequence for row, sequence in launched if row.is_sampling), now)

    def _settle(
        self, sampled: list[Sequence], picked: list[int], output: StepOutput, now: float
    ) -> list[Effect]:
        effects: list[Effect] = []
        for outcome in self._settlement.settle(sampled, picked, output):
            effects += outcome.emits
            if outcome.end is not None:
                effects += self.roster.finish(outcome.sequence, Event.STOPPED, outcome.end, outcome.message)
            elif outcome.handoff is None:
                self.roster.queues.append(outcome.sequence, now)
            else:
                effects += self._hand_off(outcome, outcome.handoff)
        return effects

    def _hand_off(self, outcome: Outcome, handoff: Handoff) -> list[Effect]:
        sequence, placement = outcome.sequence, self.roster.placement
        target = placement.settle(sequence, handoff.target, self._down)
        if target in self._down:
            message = f"TR_PEER_LOST: model {handoff.target} is not running; try again later"
            return self.roster.finish(sequence, Event.STOPPED, Reason.ERROR, message)
        sequence.happen(Event.HANDED_OFF)
        if not placement.is_single:
            handoff = handoff.replaced(places=sequence.places)
        sequence.owner = target
        sequence.last_seq = handoff.seq
        sequence.seen = list(handoff.seen)
        sequence.sent = handoff
        self.roster.queues.parked[sequence.key] = sequence
        self.counters.note_departure(handoff)
        self.roster.spreads.note_departure(sequence, handoff)
        self._rows.pressure.limit_parked()
        return [Send(target, handoff)]
