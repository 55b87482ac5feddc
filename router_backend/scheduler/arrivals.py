"""What a message from a home or a peer does to a model's population.

Keeps the protocol: duplicates and late messages change nothing, a gap is asked for again, control of
a request is accepted only by a copy that is parked or new. Runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from router_backend.core.effects import Effect, Reason, Send
from router_backend.core.errors import PolicyError, RemoteProtocolError
from router_backend.core.request import Request
from router_backend.core.sequence import Sequence
from router_backend.core.state import Event, State
from router_backend.handoff.checks import MessageBounds
from router_backend.handoff.codec import Message
from router_backend.handoff.ledger import Arrival, classify
from router_backend.handoff.message import Abort, Admit, Admitted, Finished, Handoff, Joined, Nack
from router_backend.policies.registry import PolicyBook
from router_backend.scheduler.queues import Tombstone
from router_backend.scheduler.roster import Roster


@dataclass(slots=True)
class Arrivals:
    """The doors of one model's roster."""

    roster: Roster
    policies: PolicyBook
    bounds: MessageBounds = field(init=False)

    def __post_init__(self) -> None:
        settings = self.roster.settings
        self.bounds = MessageBounds(settings.model, settings.models, self.policies.place.vocab_size)

    def on(self, message: Message, now: float) -> list[Effect]:
        """Whatever a home or a peer says; RemoteProtocolError for what it must not say."""
        match message:
            case Admit():
                return self.admit(message, now)
            case Handoff():
                return self.resume(message, now)
            case Abort():
                return self.abort(message)
            case Finished():
                return self._forget(message)
            case Nack():
                return self._resend(message)
            case Admitted() | Joined():
                return self._count_live(message)
        raise RemoteProtocolError(f"{type(message).__name__} is not for a subserver")

    def admit(self, admit: Admit, now: float) -> list[Effect]:
        """Take a request, or refuse it with the reason in its `Close`."""
        roster, request = self.roster, admit.request
        self.bounds.check_admission(admit)
        stone = roster.graveyard.find(request.key)
        if stone is not None and stone.epitaph is None:
            return roster.close_late(request, stone, 0)
        if stone is not None or roster.queues.find(request.key) is not None:
            roster.counters.duplicate_messages += 1
            return []
        tokens = [*request.prompt, *admit.answer]
        refusal = roster.refusal(request, len(tokens))
        if refusal:
            return refusal
        sequence = roster.enroll(request, tokens)
        sequence.seen[roster.settings.model] = len(tokens)
        sequence.places = roster.placement.begun_here()
        self._enqueue(sequence, now)
        announcement = Admitted(request.request_id, request.epoch, roster.placement.own)
        return [Send(other, announcement) for other in roster.placement.others]

    def resume(self, handoff: Handoff, now: float) -> list[Effect]:
        """Take control of a request: append what was missed, queue up. Nothing else."""
        roster = self.roster
        self.bounds.check_handoff(handoff)
        if handoff.places or not roster.placement.is_single:
            roster.placement.check(handoff)
        stone = roster.graveyard.find(handoff.key)
        if stone is not None:
            return self._bury_late(handoff, stone)
        sequence = roster.queues.find(handoff.key)
        held = len(sequence.tokens) if sequence else 0
        match classify(handoff, sequence.last_seq if sequence else -1, held):
            case Arrival.DUPLICATE:
                roster.counters.duplicate_messages += 1
                return []
            case Arrival.GAP:
                roster.counters.nacks += 1
                have = sequence.committed_len if sequence else 0
                nack = Nack(handoff.request_id, handoff.epoch, roster.placement.own, handoff.seq, have)
                return [Send(roster.placement.sender(handoff), nack)]
        if sequence is None:
            return self._first_contact(handoff, now)
        self.bounds.check_continuation(handoff, sequence.request, sequence.committed_len)
        return self._return(sequence, handoff, now)

    def abort(self, abort: Abort) -> list[Effect]:
        """The home lost interest. Idempotent; closes the request if the right to append is here."""
        roster = self.roster
        sequence = roster.queues.find(abort.key)
        if sequence is None:
            roster.forget_live(abort.key)
            roster.graveyard.bury(abort.key, Tombstone(-1, None, is_aborted=True))
            return []
        if sequence.state is State.PENDING_RETURN:
            roster.drop(sequence, Event.ABORTED)
            return []
        return roster.finish(sequence, Event.ABORTED, Reason.CANCELLED, "cancelled by the client")

    def _enqueue(self, sequence: Sequence, now: float) -> None:
        sequence.router = self.policies.router(sequence.request.policy)
        self.roster.note_live(sequence.key, self.roster.placement.own)
        self.roster.queues.append(sequence, now)

    def _first_contact(self, handoff: Handoff, now: float) -> list[Effect]:
        request = handoff.request
        if request is None:
            raise RemoteProtocolError(f"hand-off of {handoff.request_id} from position 0 without its request")
        self.bounds.check_continuation(handoff, request, 0)
        self.roster.counters.handoffs_received += 1
        self.roster.spreads.note_transit(handoff, now)
        refusal = self.roster.refusal(request, handoff.committed_len)
        if refusal:
            return refusal
        sequence = self.roster.enroll(request, [])
        self._enqueue(sequence, now)
        return self._joined(request) + self._accept(sequence, handoff)

    def _joined(self, request: Request) -> list[Effect]:
        """What all must know where somebody else could have been handed the request."""
        placement = self.roster.placement
        if not placement.has_siblings:
            return []
        joined = Joined(request.request_id, request.epoch, placement.own)
        return [Send(other, joined) for other in placement.others]

    def _return(self, sequence: Sequence, handoff: Handoff, now: float) -> list[Effect]:
        counters = self.roster.counters
        sequence.happen(Event.RETURNED)
        counters.handoffs_received += 1
        counters.returns += 1
        self.roster.spreads.note_transit(handoff, now)
        self.roster.spreads.return_s.observe(now - sequence.ready_at)
        if sequence.blocks:
            counters.direct_resumes += 1
        else:
            counters.recomputes += 1
        del self.roster.queues.parked[sequence.key]
        self.roster.queues.append(sequence, now)
        return self._accept(sequence, handoff)

    def _accept(self, sequence: Sequence, handoff: Handoff) -> list[Effect]:
        self.roster.resolve(sequence, kept=handoff.base)
        sequence.tokens.extend(handoff.token_ids[len(sequence.tokens) - handoff.base :])
        sequence.draft = handoff.provisional
        sequence.drafter = handoff.source if handoff.provisional else None
        sequence.told = list(handoff.logprobs)
        # A peer that kept nothing leaves nothing to feed: the last token is fed again for its logits.
        sequence.num_computed = max(0, min(sequence.num_computed, sequence.committed_len - 1))
        sequence.seen = list(handoff.seen)
        sequence.places = handoff.places
        sequence.last_seq = handoff.seq
        sequence.attempt = handoff.attempt
        sequence.raw_steps = handoff.raw_steps
        sequence.stay = 0
        sequence.owner = None
        self.roster.counters.handoff_tokens += len(handoff.token_ids)
        limit = self.roster.settings.readable_draft_max
        if sequence.draft > limit:
            message = _too_long(sequence.draft, limit)
            return self.roster.finish(sequence, _end_of(sequence), Reason.ERROR, message)
        try:
            sequence.router.receive(sequence, handoff)
        except PolicyError as error:
            self.roster.counters.policy_faults += 1
            return self.roster.finish(sequence, _end_of(sequence), Reason.ERROR, str(error))
        return []

    def _bury_late(self, handoff: Handoff, stone: Tombstone) -> list[Effect]:
        """Control of a request that has ended here: it is closed if nobody else can close it."""
        request = handoff.request or stone.epitaph
        if handoff.seq <= stone.last_seq or request is None:
            self.roster.counters.stale_messages += 1
            return []
        return self.roster.close_late(request, stone, handoff.committed_len - request.prompt_len)

    def _resend(self, nack: Nack) -> list[Effect]:
        """The target of our last hand-off lacks tokens before its base: send it again with them."""
        sequence = self.roster.queues.find(nack.key)
        sent = sequence.sent if sequence else None
        if sequence is None or not isinstance(sent, Handoff) or not _answers(nack, sequence, sent):
            self.roster.counters.stale_messages += 1
            return []
        request: Request | None = sequence.request if nack.have == 0 else None
        suffix = tuple(sequence.tokens[nack.have : sent.loc])
        return [Send(nack.source, sent.starting_at(nack.have, suffix, request))]

    def _forget(self, message: Finished) -> list[Effect]:
        """Somebody else ended the request: drop the copy here without a word."""
        roster = self.roster
        roster.forget_live(message.key)
        sequence = roster.queues.find(message.key)
        if sequence is None:
            roster.graveyard.bury(message.key, Tombstone(-1, None, is_aborted=False))
        else:
            roster.resolve(sequence, message.kept)
            roster.drop(sequence, _end_of(sequence))
        return []

    def _count_live(self, message: Admitted | Joined) -> list[Effect]:
        self.roster.placement.check_source(message.source)
        if self.roster.graveyard.find(message.key) is None:
            self.roster.note_live(message.key, message.source)
        return []


def _end_of(sequence: Sequence) -> Event:
    """The event that ends a sequence in whatever state it is."""
    return Event.ABORTED if sequence.state is State.WAITING else Event.STOPPED


def _too_long(draft: int, limit: int) -> str:
    cure = "lower the policy's k or raise the model's batch_tokens_max" if limit else "choose another policy"
    return f"TR_CAPACITY: a draft of {draft} tokens, this model can verify {limit} in a step: {cure}"


def _answers(nack: Nack, sequence: Sequence, sent: Handoff) -> bool:
    is_before = 0 <= nack.have <= sent.committed_len
    return is_before and sent.seq == nack.seq and sequence.owner == nack.source and nack.epoch == sent.epoch
