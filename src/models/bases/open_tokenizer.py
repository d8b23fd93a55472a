"""Tokenizers that write any text: byte-pair encoding on bytes, trained on the texts of a world."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from ...guards.prompt_writer import OPEN

PAD, EOS, ANSWER = "<|pad|>", "<|end|>", "<|answer|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
PIECES = r" ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]|\s"
"""What may become one token: a word, a digit or a sign, with the blank before it.  Numbers are read digit by digit."""

SMALLEST = len(ROLES) + 3 + 256
"""The smallest vocabulary: the special tokens and the bytes."""

CONTEXT = 4096
"""Tokens of a prompt and its message together, at most."""


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """At most ``vocabulary`` tokens, or :data:`SMALLEST`: the bytes, and the pieces that are frequent in ``texts``.

    Equal texts give the same tokens, in another order in every process.
    """
    tokenizer = Tokenizer(BPE())
    pieces = Split(Regex(PIECES), "isolated")
    tokenizer.pre_tokenizer = Sequence([pieces, ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, EOS, ANSWER, *ROLES],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return with_chat_template(tokenizer)


def with_chat_template(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """``tokenizer``, of :func:`train_tokenizer` or read from its JSON, as transformers uses it."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        additional_special_tokens=[ANSWER, *ROLES],
        chat_template=OPEN,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )
