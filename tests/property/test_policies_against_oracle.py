"""Every algorithm on real schedulers answers what its sequential definition answers, token for token."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from router_backend.core.effects import Reason
from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId, Sampling
from router_backend.core.sequence import Sequence
from router_backend.handoff.ledger import handoff_to
from router_backend.handoff.message import Handoff
from router_backend.policies import registry
from router_backend.policies.mixture import Mixture
from router_backend.policies.r_stitch import RStitch
from tests import oracle, oracle_holding
from tests.oracle import END, Answer, Livelock, Rolling, Rule, Writer, Writers
from tests.small_cluster import Shape, SmallCluster, Story, is_answered, place

REQUESTS = 500
REQUESTS_OF_A_VARIANT = 160
LOG2 = math.log(2.0)
WRITERS = tuple(Writer(model) for model in range(3))
AGREEING = tuple(Writer(model, shared=160) for model in range(3))


def spec(name: str, **params: float | str) -> PolicySpec:
    return PolicySpec(name, tuple(params.items()))


TWO_MODELS: dict[str, tuple[PolicySpec, Rule]] = {
    "r_stitch": (spec("r_stitch", cutoff=0.5), oracle.r_stitch(0.5)),
    "citer": (spec("citer", cutoff=0.25), oracle.citer(0.25)),
    "r2r": (spec("r2r", cutoff=0.75), oracle.r2r(0.75)),
    "co_llm": (spec("co_llm", cutoff=0.75), oracle.co_llm(0.75)),
    "max_prob": (spec("max_prob", cutoff=0.375), oracle.max_prob(0.375)),
    "entropy": (spec("entropy", cutoff=3.0), oracle.entropy(3.0)),
    "random": (spec("random", p=0.35), oracle.random(0.35)),
    "every third": (spec("fixed", mode="every", k=3), oracle.every(3)),
    "rolling": (
        spec("rolling_entropy", cutoff=2.0, return_cutoff=1.5, window=3),
        Rolling(2.0, 1.5, 3),
    ),
    "mixture": (spec("mixture", small=0.75, large=0.25), oracle.mixture(0.75, 0.25)),
    "cascade": (spec("cascade", cutoff=0.4), oracle_holding.cascade(0.4)),
    "bild": (spec("bild", cutoff=0.25, rollback_cutoff=5.0), oracle_holding.bild(0.25, 5.0, 10)),
    "speculative": (spec("speculative"), oracle_holding.speculative(4)),
}
VARIANTS: dict[str, tuple[PolicySpec, Rule]] = {
    "citer, 3 tokens": (spec("citer", cutoff=0.25, k=3), oracle.citer(0.25, k=3)),
    "r2r, the artefact's cutoff": (spec("r2r"), oracle.r2r(0.5)),
    "co_llm, linear": (spec("co_llm", cutoff=0.25, warmup="linear"), oracle.co_llm(0.25, "linear")),
    "co_llm, cosine": (spec("co_llm", cutoff=0.25, warmup="cosine"), oracle.co_llm(0.25, "cosine")),
    "co_llm, exponential": (
        spec("co_llm", cutoff=0.25, warmup="exponential", warmup_steps=8),
        oracle.co_llm(0.25, "exponential", 8),
    ),
    "entropy in bits": (spec("entropy", cutoff=4.25, unit="bits"), oracle.entropy(4.25, LOG2)),
    "rolling, bounded": (
        spec("rolling_entropy", cutoff=1.75, return_cutoff=0.5, window=2, min_stay=3, max_stay=5),
        Rolling(1.75, 0.5, 2, 3, 5),
    ),
    "bild, short drafts": (
        spec("bild", k=2, cutoff=0.5, rollback_cutoff=7.5),
        oracle_holding.bild(0.5, 7.5, 2),
    ),
    "the longest drafts": (
        spec("bild", k=32, cutoff=0.0, rollback_cutoff=7.9),
        oracle_holding.bild(0.0, 7.9, 32),
    ),
}
THREE_MODELS: dict[str, tuple[PolicySpec, Rule]] = {
    "mixture": (spec("mixture", small=0.5, large=0.3, huge=0.2), oracle.mixture(0.5, 0.3, 0.2)),
    "equal mixture": (spec("mixture"), oracle.mixture(1 / 3, 1 / 3, 1 / 3)),
    "cascade": (spec("cascade", cutoff=0.4), oracle_holding.cascade(0.4)),
    "r2r to the largest": (spec("r2r", cutoff=0.75), oracle.r2r(0.75, large=2)),
    "r2r to a named one": (spec("r2r", cutoff=0.75, large="large"), oracle.r2r(0.75, large=1)),
}
SMALL, LARGE, HUGE = (oracle.alone(model) for model in range(3))
EXTREMES: dict[str, tuple[PolicySpec, Rule]] = {
    "r_stitch never": (spec("r_stitch", cutoff=2.0), SMALL),
    "citer never": (spec("citer", cutoff=0.0), SMALL),
    "r2r never": (spec("r2r", cutoff=1.5), SMALL),
    "co_llm never": (spec("co_llm", cutoff=1.0), SMALL),
    "max_prob never": (spec("max_prob", cutoff=0.0), SMALL),
    "entropy never": (spec("entropy", cutoff=math.inf), SMALL),
    "random never": (spec("random", p=0.0), SMALL),
    "rolling never": (spec("rolling_entropy", cutoff=math.inf), SMALL),
    "r_stitch always": (spec("r_stitch", cutoff=-1.0), LARGE),
    "citer always": (spec("citer", cutoff=1.5), LARGE),
    "r2r always": (spec("r2r", cutoff=0.0), LARGE),
    "co_llm always": (spec("co_llm", cutoff=-1.0), LARGE),
    "max_prob always": (spec("max_prob", cutoff=1.5), LARGE),
    "entropy always": (spec("entropy", cutoff=0.0), LARGE),
    "random always": (spec("random", p=1.0), LARGE),
    "rolling always": (spec("rolling_entropy", cutoff=-1.0), LARGE),
    "cascade never": (spec("cascade", cutoff=0.0), SMALL),
    "cascade always": (spec("cascade", cutoff=1.5), LARGE),
    "bild always": (spec("bild", cutoff=1.5), LARGE),
    "query_level small": (spec("query_level", weights="0", bias=-1.0), SMALL),
    "query_level large": (spec("query_level", weights="0", bias=1.0), LARGE),
    "mixture of the small one": (spec("mixture", small=1.0), SMALL),
    "mixture of the large one": (spec("mixture", large=1.0), LARGE),
}


def requests(count: int, seed: int, *policies: PolicySpec) -> list[Request]:
    """Ragged prompts, some with a common beginning; the i-th request follows policy i mod their number."""
    chance = random.Random(seed)
    made = []
    for index in range(count):
        prompt = [7] * chance.choice((0, 0, 4, 9))
        prompt += [chance.randrange(END) for _ in range(chance.randint(1, 24))]
        made.append(
            Request(
                RequestId(f"r{index}"),
                tuple(prompt),
                chance.randint(1, 64),
                sampling=Sampling(seed=chance.randrange(2**40)),
                policy=policies[index % len(policies)],
                stop_ids=frozenset({END}),
            )
        )
    return made


def shape(models: int, seed: int) -> Shape:
    chance = random.Random(seed)
    thresholds = tuple(chance.randint(1, 6) for _ in range(models))
    return Shape(thresholds, num_blocks=chance.choice((40, 80, 300)), live_max=chance.randint(1, 16))


def expected(rule: Rule, request: Request, writers: Writers = WRITERS) -> Answer:
    answer = Answer(request.prompt, request.max_tokens, request.sampling.seed)
    rule(writers, answer)
    return answer


def check(story: Story, answer: Answer) -> None:
    assert is_answered(story), story
    assert (story.answer, story.authors) == (answer.tokens, answer.authors), story.request
    assert story.close is not None
    assert (story.close.reason.value, story.close.usage.discarded) == (answer.reason, answer.discarded)


def run_both(case: tuple[PolicySpec, Rule], models: int, count: int) -> SmallCluster:
    """Four clusters of different seeds and shapes share the requests; returns the last."""
    policy, rule = case
    writers = (AGREEING if policy.name == "speculative" else WRITERS)[:models]
    for seed in range(4):
        cluster = SmallCluster(writers, shape(models, seed), seed)
        answers = []
        for story in cluster.run(requests(count // 4, seed, policy)):
            answers.append(expected(rule, story.request, writers))
            check(story, answers[-1])
        for model, member in enumerate(cluster.members):
            written = sum(answer.authors.count(model) for answer in answers)
            assert member.scheduler.counters.committed == written, "a token counts where it was sampled"
        assert cluster.count("discarded") == sum(answer.discarded for answer in answers)
        assert cluster.count("sampled") == cluster.count("committed") + cluster.count("discarded")
        assert cluster.count("forced_keeps") == 0
    return cluster


@pytest.mark.parametrize("name", TWO_MODELS)
def test_two_models_answer_as_the_definition_says(name):
    cluster = run_both(TWO_MODELS[name], 2, REQUESTS)

    assert cluster.count("handoffs_sent") > 0


@pytest.mark.parametrize("name", VARIANTS)
def test_every_option_means_what_the_definition_says(name):
    cluster = run_both(VARIANTS[name], 2, REQUESTS_OF_A_VARIANT)

    assert cluster.count("handoffs_sent") > 0


@pytest.mark.parametrize("name", THREE_MODELS)
def test_three_models_answer_as_the_definition_says(name):
    cluster = run_both(THREE_MODELS[name], 3, REQUESTS if name == "mixture" else REQUESTS_OF_A_VARIANT)

    assert cluster.count("handoffs_sent") > 0


@pytest.mark.parametrize("name", EXTREMES)
def test_an_extreme_cutoff_is_one_model_alone(name):
    policy, rule = EXTREMES[name]
    healthy = tuple(Writer(model, sick=0) for model in range(2))
    for story in SmallCluster(healthy, shape(2, 3), 3).run(requests(100, 3, policy)):
        answer = expected(rule, story.request, healthy)
        assert is_answered(story)
        assert (story.answer, story.authors) == (answer.tokens, answer.authors)


@pytest.mark.parametrize(("name", "model"), [("small", 0), ("large", 1), ("huge", 2)])
def test_a_one_hot_mixture_of_three_is_that_model(name, model):
    cluster = SmallCluster(WRITERS, shape(3, 4), 4)
    for story in cluster.run(requests(100, 4, spec("mixture", **{name: 1.0}))):
        check(story, expected(oracle.alone(model), story.request))

    assert cluster.count("handoffs_sent") == 0


def test_requests_of_all_policies_share_batches_and_do_not_touch_each_other():
    cases = [*TWO_MODELS.values(), *VARIANTS.values()]
    policies = [policy for policy, _ in cases]
    cluster = SmallCluster(WRITERS[:2], Shape((3, 2), num_blocks=60), seed=11)
    for index, story in enumerate(cluster.run(requests(12 * len(cases), 11, *policies))):
        check(story, expected(cases[index % len(cases)][1], story.request, WRITERS[:2]))

    assert min(cluster.count(name) for name in ("parked_evictions", "recomputes", "direct_resumes")) > 0


def test_authors_are_drawn_by_weight_and_every_model_agrees_on_them():
    policy = spec("mixture", small=0.5, large=0.3, huge=0.2)
    routers = [registry.build(policy, place(model, 3)) for model in range(3)]
    seeds, positions = np.divmod(np.arange(20_000), 100)
    draws = [router.authors(seeds, positions) for router in routers if isinstance(router, Mixture)]

    assert all((draw == draws[0]).all() for draw in draws) and len(draws) == 3
    shares = np.bincount(draws[0], minlength=3) / 20_000
    # Three standard deviations of a share of 20,000 draws are at most 0.0106.
    assert np.abs(shares - [0.5, 0.3, 0.2]).max() < 0.0106


class LiteralStitch(RStitch):
    """Both sides discard: "identical but <=" to the letter."""

    def send(self, sequence: Sequence, target: ModelIndex) -> Handoff:
        return handoff_to(sequence, target, drop=1)


class ForgetfulStitch(LiteralStitch):
    """Keeps quiet about what it discarded, which takes the progress rule away."""

    def send(self, sequence: Sequence, target: ModelIndex) -> Handoff:
        return super().send(sequence, target).replaced(attempt=0)


@pytest.fixture
def literal(monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"literal": LiteralStitch, "forgetful": ForgetfulStitch}
    monkeypatch.setattr(registry, "FACTORIES", {**registry.FACTORIES, **named})


@pytest.mark.usefixtures("literal")
def test_the_literal_r_stitch_ends_by_the_progress_rule():
    cluster = SmallCluster(WRITERS[:2], Shape((2, 1)), seed=5)
    rule = oracle.literal_stitch(0.5, has_progress_rule=True)
    stories = cluster.run(requests(200, 5, spec("literal", cutoff=0.5)))
    answers = [expected(rule, story.request) for story in stories]
    for story, answer in zip(stories, answers, strict=True):
        check(story, answer)

    assert cluster.count("forced_keeps") == sum(answer.forced_keeps for answer in answers) > 100


@pytest.mark.usefixtures("literal")
def test_without_the_progress_rule_the_literal_r_stitch_never_ends():
    rule = oracle.literal_stitch(0.5, has_progress_rule=False)
    asked = requests(40, 5, spec("forgetful", cutoff=0.5))
    stories = SmallCluster(WRITERS[:2], Shape((2, 1)), seed=5).run(asked)
    num_hung = 0
    for story in stories:
        try:
            check(story, expected(rule, story.request))
        except Livelock:
            num_hung += 1
            assert story.close is not None and story.close.reason is Reason.ERROR
            assert story.close.message.startswith("TR_LIVELOCK"), "only the step budget ends it"

    assert num_hung > 30
