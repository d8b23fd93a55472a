"""Small Qwen3-architecture models, each with a word-level tokenizer of its own; :mod:`...warm_start` trains them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from ...guards.prompt_writer import CLOSED

PAD, EOS, UNKNOWN, ANSWER = "<pad>", "<eos>", "<unk>", "<answer>"


def build_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """One token per word, in their order after the special tokens; blanks separate words."""
    specials = [PAD, EOS, UNKNOWN, ANSWER]
    vocabulary = {word: index for index, word in enumerate(dict.fromkeys([*specials, *words]))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        additional_special_tokens=[ANSWER],
        chat_template=CLOSED,
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )


def build_model(
    tokenizer: PreTrainedTokenizerFast, *, hidden: int, layers: int, heads: int, seed: int
) -> Qwen3ForCausalLM:
    """A Qwen3 with random weights, two query heads per key-value head, tied embeddings, float32.

    The embeddings of cell words (``row,column``) start from Fourier features of row and column, so that neighbouring
    cells have similar ones before any training.
    """
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=hidden // heads,
        max_position_embeddings=tokenizer.model_max_length,
        rope_theta=10_000.0,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    weight = model.get_input_embeddings().weight
    with torch.no_grad():
        scale = weight.std()  # before any change: the vocabulary comes in another order in every process
        for word, index in tokenizer.get_vocab().items():
            if cell := re.fullmatch(r"(\d+),(\d+)", word):
                weight[index] += scale * _fourier(int(cell[1]), int(cell[2]), hidden)
    return model


def _fourier(row: int, column: int, width: int) -> torch.Tensor:
    """(width,) sines and cosines of a cell's row and column at wavelengths from 2.5 to 40 cells; the rest is 0."""
    wave = 2 * torch.pi / torch.logspace(0.4, 1.6, width // 8, base=10)
    angles = torch.cat([row * wave, column * wave])
    features = torch.cat([angles.sin(), angles.cos()])
    return torch.nn.functional.pad(features, (0, width - len(features)))
