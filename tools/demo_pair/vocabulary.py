"""The word-level vocabulary of the demo pair: one symbol is one token, 128 in all.

Owns the token ids, the tokenizer and the chat template. Text is words between single spaces, and decoded
text is the same, so that a person can read both. A raw prompt and a chat with one user message give the
same ids: the post-processor adds ``<bos>`` to raw text, and the template, which by convention is
tokenized without the post-processor, writes it itself.
"""

from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing

from tools.demo_pair.task import CHAIN_LENGTH, RULE_WORDS, STATE_WORDS, Chains, IntArray

SPECIAL_WORDS = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD_ID, BOS_ID, EOS_ID, UNK_ID = range(len(SPECIAL_WORDS))
WORDS = (*SPECIAL_WORDS, *STATE_WORDS, *RULE_WORDS)
FIRST_STATE_ID = len(SPECIAL_WORDS)
FIRST_RULE_ID = FIRST_STATE_ID + len(STATE_WORDS)

PROMPT_TOKENS = 1 + CHAIN_LENGTH + 1
ANSWER_TOKENS = CHAIN_LENGTH + 1
POSITIONS = 4096

# A system message is left out: every word outside the vocabulary would only add an <unk>.
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %} {{ message['content'] | trim }}"
    "{% elif message['role'] == 'assistant' %} {{ message['content'] | trim }} {{ eos_token }}"
    "{% endif %}{% endfor %}"
)


def token_ids(chains: Chains) -> IntArray:
    """Return [count, 27]: ``<bos> rules start`` and the answer, 12 states and ``<eos>``."""
    bos = np.full((len(chains), 1), BOS_ID, dtype=np.int64)
    eos = np.full((len(chains), 1), EOS_ID, dtype=np.int64)
    return np.hstack([bos, FIRST_RULE_ID + chains.rules, FIRST_STATE_ID + chains.states, eos])


def build_tokenizer() -> Tokenizer:
    """Return the tokenizer whose ``save`` writes ``tokenizer.json``."""
    words = {word: token for token, word in enumerate(WORDS)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", BOS_ID)]
    )
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in SPECIAL_WORDS])
    return tokenizer


def tokenizer_config() -> dict[str, Any]:
    """Return the content of ``tokenizer_config.json``."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": POSITIONS,
        "pad_token": "<pad>",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "unk_token": "<unk>",
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
