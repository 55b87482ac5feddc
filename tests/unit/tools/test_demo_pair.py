"""The demo pair's task, vocabulary, training and evaluation, and the committed files."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tools import train_demo_pair
from tools.demo_pair.evaluation import (
    EntropyCutoff,
    RandomShare,
    Row,
    Separation,
    normalised_entropy,
    ranking,
    score,
)
from tools.demo_pair.export import read_model, write_model
from tools.demo_pair.task import (
    RULE_WORDS,
    answer_text,
    follow,
    held_out_chains,
    prompt_text,
    rule_tables,
    sample_chains,
)
from tools.demo_pair.training import LARGE, RECIPES, SMALL, learning_rate_share, train, trained_prompts
from tools.demo_pair.vocabulary import BOS_ID, EOS_ID, UNK_ID, WORDS, build_tokenizer, token_ids

REPOSITORY = Path(__file__).parents[3] / "model_repository"
DIRECTORIES = [REPOSITORY / "small/1", REPOSITORY / "large/1"]
PROMPT = "turn lift fold push spin flip roll bend cut tie pull drop 42"

both_models = pytest.mark.parametrize("directory", DIRECTORIES, ids=["small", "large"])


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    """Keep torch to one thread: models this small are slowed down by a second one on a busy machine."""
    torch.set_num_threads(1)


def demo_prompts() -> list[dict[str, str]]:
    """Return the committed prompts."""
    prompts: list[dict[str, str]] = json.loads((REPOSITORY / "demo_prompts.json").read_text())
    return prompts


def greedy_answers(directory: Path, prompts: list[str]) -> list[str]:
    """Return what one committed model answers, by the ordinary calls of transformers."""
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model: Any = AutoModelForCausalLM.from_pretrained(directory)
    inputs = tokenizer(prompts, return_tensors="pt")
    output = model.generate(**inputs, max_new_tokens=16)
    new = output[:, inputs["input_ids"].shape[1] :]
    answers: list[str] = tokenizer.batch_decode(new, skip_special_tokens=True)
    return answers


def right_answers(directory: Path, count: int) -> int:
    """Return how many of the first committed prompts one model answers rightly."""
    rows = demo_prompts()[:count]
    answers = greedy_answers(directory, [row["prompt"] for row in rows])
    return sum(answer == row["answer"] for answer, row in zip(answers, rows, strict=True))


def test_the_same_seed_draws_the_same_chains() -> None:
    first, second = (sample_chains(np.random.default_rng(7), 50) for _ in range(2))

    assert first.prompt_keys() == second.prompt_keys()
    assert (first.states == second.states).all()


def test_another_seed_draws_other_chains() -> None:
    first, second = (sample_chains(np.random.default_rng(seed), 50) for seed in (7, 8))

    assert first.prompt_keys() != second.prompt_keys()


def test_every_rule_is_a_permutation_of_the_states() -> None:
    assert (np.sort(rule_tables(), axis=1) == np.arange(100)).all()


def test_a_chain_follows_its_rules_from_the_start_state() -> None:
    tables = rule_tables()
    chains = follow(np.array([[3, 0, 5]]), np.array([42]))

    first = tables[3, 42]
    second = tables[0, first]
    assert chains.states.tolist() == [[42, first, second, tables[5, second]]]


def test_prompt_and_answer_are_words_between_single_spaces() -> None:
    chains = follow(np.array([[3, 0]]), np.array([7]))

    assert prompt_text(chains, 0) == "push turn 07"
    assert answer_text(chains, 0) == " ".join(f"{state:02d}" for state in chains.states[0, 1:])


def test_the_vocabulary_has_128_distinct_words() -> None:
    assert len(WORDS) == len(set(WORDS)) == 128
    assert len(RULE_WORDS) == 24


def test_the_tokenizer_gives_the_ids_that_training_uses() -> None:
    chains = sample_chains(np.random.default_rng(7), 1)
    text = f"{prompt_text(chains, 0)} {answer_text(chains, 0)} <eos>"

    assert build_tokenizer().encode(text).ids == token_ids(chains)[0].tolist()


def test_decoding_returns_the_encoded_text() -> None:
    tokenizer = build_tokenizer()

    assert tokenizer.decode(tokenizer.encode(PROMPT).ids) == PROMPT


def test_text_decoded_in_two_parts_is_the_text_decoded_at_once() -> None:
    tokenizer = build_tokenizer()
    ids = tokenizer.encode(PROMPT).ids
    whole = tokenizer.decode(ids)

    for cut in range(2, len(ids)):
        prefix = tokenizer.decode(ids[:cut])
        assert f"{prefix} {tokenizer.decode(ids[cut:])}" == whole


def test_an_unknown_word_becomes_one_unknown_token() -> None:
    assert build_tokenizer().encode("turn please 7").ids == [BOS_ID, 104, UNK_ID, UNK_ID]


@both_models
def test_a_raw_prompt_gets_exactly_one_bos(directory: Path) -> None:
    ids = AutoTokenizer.from_pretrained(directory)(PROMPT)["input_ids"]

    assert ids[0] == BOS_ID
    assert ids.count(BOS_ID) == 1
    assert len(ids) == 14


@both_models
def test_a_chat_message_gives_the_ids_of_the_raw_prompt(directory: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(directory)
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": PROMPT}]

    chat = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)

    assert chat == tokenizer(PROMPT)["input_ids"]


@both_models
def test_committed_weights_load_and_run_past_4000_positions(directory: Path) -> None:
    model = read_model(directory)
    tokens = torch.full((1, 4096), 104)

    with torch.inference_mode():
        logits = model(input_ids=tokens, logits_to_keep=1).logits

    assert model.config.max_position_embeddings >= 4096
    assert logits.shape == (1, 1, 128)
    assert bool(logits.isfinite().all())


@both_models
def test_the_configuration_names_all_that_a_plain_loader_reads(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())

    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 10000.0
    assert config["head_dim"] == 32
    assert config["tie_word_embeddings"] is True
    assert config["vocab_size"] == 128
    assert config["eos_token_id"] == EOS_ID
    assert config["dtype"] == config["torch_dtype"] == "float32"


def test_the_pair_is_smaller_than_25_megabytes() -> None:
    files = [path for directory in DIRECTORIES for path in directory.iterdir()]

    assert sum(path.stat().st_size for path in files) < 25e6


def test_committed_prompts_are_the_first_held_out_chains() -> None:
    chains = held_out_chains(trained_prompts((SMALL, LARGE)))

    assert demo_prompts() == [
        {"prompt": prompt_text(chains, row), "answer": answer_text(chains, row)} for row in range(200)
    ]


def test_no_held_out_prompt_was_trained_on() -> None:
    trained = trained_prompts((SMALL, LARGE))
    chains = held_out_chains(trained)

    assert len(chains) == 400
    assert trained.isdisjoint(chains.prompt_keys())


def test_the_large_model_answers_rightly_and_the_small_one_often_does_not() -> None:
    small, large = (right_answers(directory, 20) for directory in DIRECTORIES)

    assert large == 20
    assert 2 <= small <= 12


def test_routing_by_entropy_beats_random_routing_of_the_same_share() -> None:
    pair = tuple(read_model(directory) for directory in DIRECTORIES)
    chains = held_out_chains(set()).take(np.arange(60))

    routed = score("entropy", pair, chains, EntropyCutoff(0.2))
    at_random = score("random", pair, chains, RandomShare(routed.routed_share))

    assert routed.routed_share < 0.4
    assert routed.exact_share > 0.95
    assert at_random.exact_share < 0.7


def test_an_unsure_small_model_is_routed_and_a_sure_large_one_hands_back() -> None:
    choice = EntropyCutoff(0.2)
    sure, unsure = np.array([0.1, 0.1]), np.array([0.1, 0.9])

    assert choice.choose(unsure, unsure).tolist() == [False, True]
    assert choice.choose(sure, sure).tolist() == [False, True]
    assert choice.choose(sure, sure).tolist() == [False, False]


def test_entropy_is_normalised_to_one_for_a_uniform_guess() -> None:
    logits = torch.zeros(2, 128)
    logits[1, 5] = 100.0

    assert normalised_entropy(logits) == pytest.approx([1.0, 0.0])


def test_ranking_is_the_chance_that_a_wrong_token_is_the_more_uncertain_one() -> None:
    assert ranking(np.array([0.5, 0.9]), np.array([0.1, 0.6])) == 0.75
    assert ranking(np.array([]), np.array([0.1])) == 1.0


def test_the_learning_rate_warms_up_and_ends_at_two_percent() -> None:
    shares = [learning_rate_share(step, 400) for step in (0, 99, 100, 400)]

    assert shares == pytest.approx([0.01, 1.0, 1.0, 0.02])


def test_the_same_recipe_trains_the_same_weights(tmp_path: Path) -> None:
    recipe = replace(SMALL, steps=3)
    seen: list[float] = []
    for name in ("a", "b"):
        write_model(train(recipe, lambda _, loss: seen.append(loss)), tmp_path / name)

    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("a", "b"))
    assert first == second
    assert seen[:3] == seen[3:]
    assert seen[0] == pytest.approx(math.log(128), abs=0.2)


def test_the_tool_trains_into_the_given_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(RECIPES, "small", replace(SMALL, steps=2))
    out, prompts = tmp_path / "small", tmp_path / "prompts.json"

    status = train_demo_pair.main(["--models", "small", "--out-small", str(out), "--prompts", str(prompts)])

    assert status == 0
    assert prompts.read_text() == (REPOSITORY / "demo_prompts.json").read_text()
    assert sorted(path.name for path in out.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert "small: step 2/2" in capsys.readouterr().err


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an evaluation is said to find."""
    quality = Separation(0.1, 0.6, 0.1, 0.99)
    rows = [Row("small alone", 0.3, 0.0)]
    monkeypatch.setattr(train_demo_pair, "evaluate_pair", lambda _: (quality, rows))


@pytest.mark.usefixtures("figures")
def test_the_figures_are_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert train_demo_pair.main(["--evaluate", "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == {
        "small": {
            "token_error": 0.1,
            "entropy_wrong": 0.6,
            "entropy_right": 0.1,
            "ranking": 0.99,
        },
        "rows": [{"name": "small alone", "exact_share": 0.3, "routed_share": 0.0}],
    }


@pytest.mark.usefixtures("figures")
def test_the_figures_are_printed_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert train_demo_pair.main(["--evaluate"]) == 0

    assert capsys.readouterr().out.splitlines()[-1].split() == ["small", "alone", "30.0%", "0.0%"]
