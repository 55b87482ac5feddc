"""Prompts: one beginning-of-sequence token, the model's own chat template, named faults."""

import json
from datetime import datetime
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from python_backend.text.chat_template import ChatTemplate
from python_backend.text.tokenizer import ModelTokenizer, load_tokenizer
from router_backend.core.errors import ConfigError, RequestError
from tests.unit.text.tokenizers_made_here import byte_fallback, byte_level, word_level

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}\n{{ message.role }}: {{ message.content }}\n"
    "    {% endfor %}{% if add_generation_prompt %}bot:{% endif %}"
)
CHAT = [{"role": "user", "content": "hello <b>"}]


def model_dir(path: Path, config: dict[str, object], template: str = "") -> Path:
    byte_level(adds_bos=True).save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    if template:
        (path / "chat_template.jinja").write_text(template)
    return path


def test_a_prompt_gets_one_bos_whoever_writes_it() -> None:
    text = ModelTokenizer(byte_level(adds_bos=True), {"bos_token": "<s>"})
    bos = byte_level().token_to_id("<s>")
    plain = text.encode("hello")
    assert plain == text.encode("<s>hello")
    assert (plain[0], plain.count(bos)) == (bos, 1)


def test_a_model_without_bos_gets_none() -> None:
    text = ModelTokenizer(byte_level(), {"bos_token": "<s>"})
    assert text.encode("hello") == tuple(byte_level().encode("hello").ids)


def test_the_configuration_can_ask_for_a_bos() -> None:
    text = ModelTokenizer(byte_level(), {"bos_token": "<s>", "add_bos_token": True})
    assert text.encode("hello")[0] == byte_level().token_to_id("<s>")


def test_a_whitespace_prompt_has_tokens() -> None:
    assert ModelTokenizer(byte_level(), {}).encode(" ")


def test_a_chat_is_rendered_with_the_models_template_and_has_one_bos(tmp_path: Path) -> None:
    text = load_tokenizer(model_dir(tmp_path, {"bos_token": {"content": "<s>"}}, TEMPLATE))
    shown = text.render(CHAT)
    assert shown == "<s>user: hello <b>\nbot:"
    assert text.encode(shown).count(byte_level().token_to_id("<s>")) == 1


@pytest.mark.parametrize(
    "stored", [TEMPLATE, [{"name": "tools", "template": "no"}, {"name": "default", "template": TEMPLATE}]]
)
def test_a_template_may_live_in_the_configuration(tmp_path: Path, stored: object) -> None:
    text = load_tokenizer(model_dir(tmp_path, {"bos_token": "<s>", "chat_template": stored}))
    assert text.has_chat_template
    assert text.render(CHAT).endswith("bot:")


def test_special_tokens_may_live_in_their_own_file(tmp_path: Path) -> None:
    model_dir(tmp_path, {})
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<s>"}')
    assert load_tokenizer(tmp_path).encode("a")[0] == byte_level().token_to_id("<s>")


def test_without_a_template_a_chat_is_refused(tmp_path: Path) -> None:
    text = load_tokenizer(model_dir(tmp_path, {}))
    with pytest.raises(RequestError, match="messages: the model has no chat template"):
        text.render(CHAT)


def test_ids_become_text_without_special_tokens() -> None:
    text = ModelTokenizer(word_level(), {})
    assert text.decode(text.encode("<s> s0 r1 : 17 </s>")) == "s0 r1 : 17"
    assert text.vocab_size == 8


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("tokenizer.json", "{}", "tokenizer.json: not a tokenizer"),
        ("tokenizer_config.json", "{", "tokenizer_config.json: not JSON"),
        ("tokenizer_config.json", "[]", "tokenizer_config.json: expected an object, found list"),
        ("chat_template.jinja", "{% if %}", "chat_template: line 1"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, content: str, fault: str) -> None:
    (model_dir(tmp_path, {}) / name).write_text(content)
    with pytest.raises(ConfigError, match=fault):
        load_tokenizer(tmp_path)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer.json: No such file.*point tokenizer_dir"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("{{ raise_exception('only users may speak') }}", "only users may speak"),
        ("{{ messages[7].role + 1 }}", "no element 7"),
        ("{{ messages[0].content + 1 }}", "concatenate"),
        ("{{ ().__class__.__bases__[0].__subclasses__() }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe|not safely callable"),
    ],
)
def test_what_a_template_refuses_is_the_clients_error(source: str, fault: str) -> None:
    with pytest.raises(RequestError, match=fault):
        ChatTemplate(source, {}).render(CHAT)


def test_templates_find_the_names_they_expect() -> None:
    noon = datetime(2026, 1, 2, 12)
    source = "{{ strftime_now('%d %b') }} {{ messages[0]|tojson }} {{ eos_token }}"
    shown = ChatTemplate(source, {"eos_token": "</s>"}, lambda: noon).render(CHAT)
    assert shown == '02 Jan {"role": "user", "content": "hello <b>"} </s>'


TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def test_a_template_that_knows_tools_shows_them() -> None:
    template = ChatTemplate("{% if tools %}{{ tools[0].function.name }}: {% endif %}ask", {})
    assert (template.render(CHAT, [TOOL]), template.render(CHAT)) == ("add: ask", "ask")


def test_tools_are_refused_where_the_model_would_not_see_them() -> None:
    with pytest.raises(RequestError, match="tools: the model's chat template does not show tools"):
        ChatTemplate(TEMPLATE, {}).render(CHAT, [TOOL])


def test_a_word_is_spelled_with_a_space_in_front_and_without() -> None:
    """F21: whichever of the two the client wrote."""
    backend = byte_level(adds_bos=True)
    text = ModelTokenizer(backend, {"bos_token": "<s>"})
    plain, spaced, space = (
        tuple(backend.encode(form, add_special_tokens=False).ids) for form in ("there", " there", " ")
    )
    assert text.spellings("there") == text.spellings(" there") == (plain, spaced)
    assert text.spellings(" ") == (space,)


def test_a_tokenizer_that_puts_a_space_in_front_shows_the_word_without_one_too() -> None:
    backend = byte_fallback()
    marked, bare = (backend.token_to_id(token) for token in ("▁a", "a"))
    found = ModelTokenizer(backend, {"unk_token": "<unk>"}).spellings("a")
    assert {(marked,), (bare,)} <= set(found)
    assert {"a", " a", "  a"} >= {"".join(map(backend.id_to_token, run)).replace("▁", " ") for run in found}


def test_a_word_that_no_token_stands_for_has_no_spelling() -> None:
    silent = Tokenizer(WordLevel({"hello": 0}, unk_token="[UNK]"))
    assert ModelTokenizer(silent, {}).spellings("bye") == ()
    assert ModelTokenizer(word_level(), {"unk_token": "<unk>"}).spellings("bye") == ()
    assert ModelTokenizer(word_level(), {}).spellings("s0 r1") == ((3, 4),)


def test_a_word_outside_a_vocabulary_without_unknown_token_is_the_clients_error() -> None:
    backend = Tokenizer(WordLevel({"hello": 0}, unk_token="[UNK]"))

    with pytest.raises(RequestError, match="prompt: the model's tokenizer cannot encode it"):
        ModelTokenizer(backend, {}).encode("goodbye")
