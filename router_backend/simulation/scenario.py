"""Random deployments and workloads, each from one number.

A seed that fails is replayed with `python -m tools.simulate --replay SEED ...`, which prints its trace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from router_backend.core.replicas import ReplicaIndex, Replicas
from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId, Sampling
from router_backend.scheduler.rounds import Mode
from router_backend.scheduler.settings import SchedulerSettings
from router_backend.simulation.cluster import Cluster, Deployment
from router_backend.simulation.mortal_cluster import MortalCluster
from router_backend.simulation.network import PERFECT, Conditions
from router_backend.simulation.oracle import expected_answer, expected_logprobs
from router_backend.simulation.outages import Faults, Outage
from router_backend.simulation.script import Script, context_of
from router_backend.stream.lives import LossPolicy, PeerLoss, end_of

REQUEST_S_MAX = 2000.0
TEMPLATE = tuple(range(1, 41))
"""Prompts begin alike, so that prefixes are shared."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`arrivals` and `cancels` are in seconds, by request."""

    seed: int
    deployment: Deployment
    requests: tuple[Request, ...]
    arrivals: tuple[float, ...]
    cancels: tuple[tuple[int, float], ...]
    faults: Faults | None = None

    @property
    def arguments(self) -> str:
        """What `--replay` needs to build it again."""
        deployment, counts = self.deployment, self.deployment.replicas.counts
        mode = deployment.schedulers[0].mode.value
        found = f"{self.seed} {len(counts)} {deployment.conditions.drop_p} {mode}"
        found = found if self.faults is None else f"{found} {self.faults.loss.choice.value}"
        return found if max(counts) == 1 else f"{found} --replicas {','.join(map(str, counts))}"

    def cluster(self) -> Cluster:
        faults = self.faults
        cluster = Cluster(self.deployment) if faults is None else MortalCluster(self.deployment, faults)
        for request, at in zip(self.requests, self.arrivals, strict=True):
            cluster.submit(request, at)
        for index, at in self.cancels:
            cluster.cancel(self.requests[index].key, at)
        return cluster

    def finished(self) -> Cluster:
        """Run to the end with every check; a failure names the seed."""
        cluster = self.cluster()
        try:
            self.finish(cluster)
        except Exception as error:
            replay = f"python -m tools.simulate --replay {self.arguments}"
            raise AssertionError(f"seed {self.seed} at {cluster.now} s ({replay}): {error!r}") from error
        return cluster

    def finish(self, cluster: Cluster) -> None:
        """Run `cluster` to the end with every check."""
        cluster.run()
        cluster.check_end()
        if self.faults is None:
            self.check_texts(cluster)
        else:
            self.check_survivors(cluster)

    def check_survivors(self, cluster: Cluster) -> None:
        """With outages, who writes may change: each token is what its writer says after those before it, and
        nothing is cut off but what a client left, a lost message stranded or the policy lets fail."""
        may_fail = self.deployment.conditions.drop_p > 0
        may_fail |= self.faults is not None and self.faults.loss.choice is PeerLoss.FAIL
        left = {self.requests[index].key for index, _ in self.cancels}
        for request in self.requests:
            answer = cluster.home.answers[request.key]
            tokens = [*request.prompt, *answer.token_ids]
            script, seed = self.deployment.script, request.sampling.seed
            for position, token in enumerate(answer.tokens, request.prompt_len):
                context = context_of(tokens[:position])
                assert token.token_id == script.token(seed, context, token.model), (request, position)
            is_whole = end_of(request, answer.token_ids) is not None
            assert is_whole or may_fail or request.key in left, (request, answer)

    def check_texts(self, cluster: Cluster) -> None:
        """Complete answers are the oracle's; those that were cut off are the beginning of them."""
        script, models = self.deployment.script, len(self.deployment.replicas.counts)
        for request in self.requests:
            answer = cluster.home.answers[request.key]
            tokens, writers = expected_answer(request, script, models)
            length = len(answer.tokens)
            assert answer.token_ids == tokens[:length], (request, answer.token_ids, tokens)
            assert [token.model for token in answer.tokens] == writers[:length], request
            told = [token.logprobs for token in answer.tokens]
            assert told == expected_logprobs(request, script, answer.token_ids, writers), (request, told)
            is_cut = answer.is_given_up or (answer.close and answer.close.reason.value == "cancelled")
            assert is_cut or length == len(tokens), (request, answer.close)


def mortal_scenario(
    seed: int, models: int, drop_p: float, choice: PeerLoss, counts: tuple[int, ...] = ()
) -> Scenario:
    """The same systems with subservers that are killed or stopped, one to six times, for a moment or for
    long. `counts` as for `scenario`."""
    found = scenario(seed, models, drop_p, counts=counts)
    subservers = len(found.deployment.schedulers)
    rng = np.random.default_rng([seed, 2])
    outages: list[Outage] = []
    ends = [0.0] * subservers
    for _ in range(int(rng.integers(1, 7))):
        number = int(rng.integers(subservers))
        at = ends[number] + 1 / 16 + float(rng.integers(0, 240)) / 8
        lasts_s = float(rng.integers(1, 160)) / 8
        ends[number] = at + lasts_s
        outages.append(Outage(number, at, lasts_s, bool(rng.random() < 0.5)))
    names = tuple(f"model{index}" for index in range(models))
    faults = Faults(LossPolicy(names, choice, retry_s=1000.0, lives_max=1000), tuple(outages))
    schedulers = tuple(map(_impatient, found.deployment.schedulers))
    deployment = replace(found.deployment, schedulers=schedulers, request_s_max=REQUEST_S_MAX)
    return replace(found, deployment=deployment, faults=faults)


def _impatient(settings: SchedulerSettings) -> SchedulerSettings:
    """A count of live requests that a dead process kept is lost with it: only the deadline bounds a wait."""
    return replace(settings, deadline_s=min(settings.deadline_s, 8.0))


def scenario(
    seed: int,
    models: int = 2,
    drop_p: float = 0.0,
    mode: Mode = Mode.DELAYED,
    counts: tuple[int, ...] = (),
) -> Scenario:
    """1 to 16 requests on `models` models, over a bad network, in pools that are too small for them.

    `counts` are the replicas of every model, one each by default. The barrier modes need links that keep
    their order and repeat nothing, as sockets do.
    """
    rng = np.random.default_rng(seed)
    script = Script(end_p=float(rng.choice([0.0, 0.05])))
    requests = tuple(_request(rng, index, models) for index in range(int(rng.integers(1, 17))))
    arrivals = tuple(float(rng.integers(0, 80)) / 8 for _ in requests)
    cancels = tuple(
        (index, arrivals[index] + float(rng.integers(0, 400)) / 8)
        for index in range(len(requests))
        if rng.random() < 0.15
    )
    schedulers = _schedulers(rng, models, max(request.length_max for request in requests))
    latencies_s = tuple(_latency(rng, model) for model in range(models))
    replicas = Replicas(counts or (1,) * models)
    deployment = Deployment(
        schedulers=_replicated(tuple(replace(one, mode=mode) for one in schedulers), replicas),
        latencies_s=tuple(latencies_s[model] for model in replicas.models),
        script=script,
        conditions=_ordered(rng) if mode.is_barrier else _conditions(rng, drop_p),
        seed=seed,
        request_s_max=REQUEST_S_MAX if drop_p else math.inf,
    )
    found = Scenario(seed, deployment, requests, arrivals, cancels)
    return with_reused_ids(found) if has_reused_ids(seed) else found


def has_reused_ids(seed: int) -> bool:
    """A third of all systems, under every kind of fault."""
    return seed % 3 == 1


def with_reused_ids(found: Scenario) -> Scenario:
    """The same requests under one to three ids. Epochs tell them apart; where a client has left, its next
    request under the id often comes at the same instant, before anybody has heard of the abort."""
    rng = np.random.default_rng([found.seed, 3])
    names = rng.integers(int(rng.integers(1, 4)), size=len(found.requests)).tolist()
    epochs = rng.permutation(len(names)).tolist()
    requests, arrivals, left_at = [], list(found.arrivals), dict(found.cancels)
    last: dict[int, int] = {}
    for index, (request, name, epoch) in enumerate(zip(found.requests, names, epochs, strict=True)):
        requests.append(replace(request, request_id=RequestId(f"r{name}"), epoch=epoch))
        moved_to = left_at.get(last.get(name, -1), 0.0)
        if moved_to > arrivals[index] and rng.random() < 0.5:
            if index in left_at:
                left_at[index] += moved_to - arrivals[index]
            arrivals[index] = moved_to
        last[name] = index
    cancels = tuple(left_at.items())
    return replace(found, requests=tuple(requests), arrivals=tuple(arrivals), cancels=cancels)


def _replicated(
    schedulers: tuple[SchedulerSettings, ...], replicas: Replicas
) -> tuple[SchedulerSettings, ...]:
    """One for every subserver, of those of every model."""
    found = []
    for number, model in enumerate(replicas.models):
        which = replicas.of(model).index(ReplicaIndex(number))
        found.append(replace(schedulers[model], counts=replicas.counts, replica=which))
    return tuple(found)


def _request(rng: np.random.Generator, index: int, models: int) -> Request:
    length = int(rng.integers(1, 33))
    prompt = (*TEMPLATE[: int(rng.integers(0, length))], *rng.integers(1, 97, 40).tolist())[:length]
    return Request(
        request_id=RequestId(f"r{index}"),
        prompt=tuple(prompt),
        max_tokens=int(rng.integers(1, 13)),
        sampling=Sampling(seed=int(rng.integers(0, 4)), logprobs=(None, 0, 2)[index % 3]),
        policy=_policy(rng, models),
        stop_ids=frozenset({Script.END_ID}),
    )


def _policy(rng: np.random.Generator, models: int) -> PolicySpec:
    mode = ("never", "always", "every", "every", "r_stitch", "r_stitch")[int(rng.integers(6))]
    if mode == "r_stitch" and models == 2:
        return PolicySpec("r_stitch", (("cutoff", float(rng.integers(-1, 10)) / 8),))
    if mode in ("never", "always"):
        return PolicySpec("fixed", (("mode", mode),))
    to = f"model{int(rng.integers(models))}"
    return PolicySpec("fixed", (("mode", "every"), ("k", int(rng.integers(1, 5))), ("to", to)))


def _schedulers(rng: np.random.Generator, models: int, length_max: int) -> tuple[SchedulerSettings, ...]:
    thresholds = tuple(int(rng.integers(1, 5 if rng.random() < 0.7 else 13)) for _ in range(models))
    deadline_s = float(rng.choice([0.0, 2.0, 8.0, math.inf]))
    models_of = map(ModelIndex, range(models))
    return tuple(_settings(rng, model, thresholds, length_max, deadline_s) for model in models_of)


def _settings(
    rng: np.random.Generator,
    model: ModelIndex,
    thresholds: tuple[int, ...],
    length_max: int,
    deadline_s: float,
) -> SchedulerSettings:
    block_size = int(rng.choice([1, 2, 4, 8]))
    smallest = -(-length_max // block_size)
    batch_max = max(thresholds[model], int(rng.integers(1, 17)))
    return SchedulerSettings(
        model=model,
        thresholds=thresholds,
        num_blocks=smallest * int(rng.choice([1, 1, 2, 4])) + int(rng.integers(0, 3)),
        block_size=block_size,
        length_max=length_max,
        batch_max=batch_max,
        batch_tokens_max=batch_max + int(rng.choice([0, 3, 8, 64])),
        deadline_s=deadline_s,
    )


def _latency(rng: np.random.Generator, model: int) -> tuple[float, ...]:
    first = (model + 1) * float(rng.integers(1, 9)) / 8
    return tuple(first + rows / 8 * float(rng.integers(0, 2)) for rows in range(8))


def _conditions(rng: np.random.Generator, drop_p: float) -> Conditions:
    if rng.random() < 0.1 and not drop_p:
        return PERFECT
    return Conditions(
        delay_ticks_max=int(rng.integers(0, 9)),
        late_p=float(rng.choice([0.0, 0.1, 0.5])),
        late_ticks_max=int(rng.integers(1, 65)),
        duplicate_p=float(rng.choice([0.0, 0.1, 0.5])),
        drop_p=drop_p,
    )


def _ordered(rng: np.random.Generator) -> Conditions:
    return Conditions(delay_ticks_max=int(rng.integers(0, 9)))
