"""The base models of the laptop scale: small Qwen3-architecture networks, each with a word-level tokenizer of its own.

``load_model`` and ``load_tokenizer`` give the shipped ones; :mod:`troupe.warm_start` makes them from nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import as_file, files
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.utils.logging import disable_progress_bar

from ..rollout.lora import Adapted
from .adapters import WEIGHTS, quiet

disable_progress_bar()

ADAPTER = "adapter_config.json"
FOREIGN = (
    "alora_invocation_tokens alpha_pattern fan_in_fan_out layer_replication lora_bias modules_to_save rank_pattern "
    "target_parameters trainable_token_indices use_bdlora use_dora use_qalora use_rslora"
).split()
"""Of peft's settings, those that change what an adapter computes and that the engine does not know."""

PAD, EOS, UNKNOWN, ANSWER = "<pad>", "<eos>", "<unk>", "<answer>"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}" + ANSWER + "{% endif %}"
)


def build_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """One token a word, in the given order after the special tokens; words are apart by blanks."""
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
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )


def build_model(
    tokenizer: PreTrainedTokenizerFast, *, hidden: int, layers: int, heads: int, seed: int
) -> Qwen3ForCausalLM:
    """A Qwen3 with random weights, two query heads to a key-value head, tied embeddings, float32.

    Cell words (``row,column``) start from Fourier features of row and column, so that neighbours begin alike.
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
        max_position_embeddings=512,
        rope_theta=10_000.0,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    weight = model.get_input_embeddings().weight
    with torch.no_grad():
        for word, index in tokenizer.get_vocab().items():
            row, comma, column = word.partition(",")
            if comma:
                weight[index] += weight.std() * _fourier(int(row), int(column), hidden)
    return model


def _fourier(row: int, column: int, width: int) -> torch.Tensor:
    """(width,) sines and cosines of a cell's row and column at wavelengths from 2.5 to 40 cells; 0 beyond."""
    wave = 2 * torch.pi / torch.logspace(0.4, 1.6, width // 8, base=10)
    angles = torch.cat([row * wave, column * wave])
    features = torch.cat([angles.sin(), angles.cos()])
    return torch.nn.functional.pad(features, (0, width - len(features)))


SHIPPED = {
    "laptop": "base",
    "laptop_couplet": "base_couplet",
    "laptop_code": "base_code",
    "laptop_math": "base_math",
}
"""The shipped base models: name -> folder beside this file."""


class BaseModelError(RuntimeError):
    """A shipped base model is missing or damaged."""


def base_path(base: str = "laptop") -> Path:
    """Where a shipped base model lies, after checking its files against ``checksums.json``."""
    remedy = f"`make base_model base={base}`"
    with as_file(files("troupe.models") / SHIPPED[base]) as folder:
        listing = folder / "checksums.json"
        if not listing.is_file():
            raise BaseModelError(f"no base model in {folder}; make one with {remedy}")
        for name, expected in json.loads(listing.read_text()).items():
            path = folder / name
            found = sha256(path.read_bytes()).hexdigest() if path.is_file() else "nothing"
            if found != expected:
                raise BaseModelError(f"{path} is damaged: sha256 {found}, expected {expected}; run {remedy}")
        return Path(folder)


def resolve(base: str) -> str:
    """The path or hub name of ``base``, which may be one of :data:`SHIPPED`."""
    return str(base_path(base)) if base in SHIPPED else base


def load_model(base: str, dtype: torch.dtype = torch.float32) -> Qwen3ForCausalLM:
    """A causal LM: a shipped one (see :data:`SHIPPED`), a folder's or the hub's; an adapter's folder is merged into the
    model below it.
    """
    if (folder := Path(base)).is_dir() and is_adapter(folder):
        with quiet():
            return PeftModel.from_pretrained(load_model(below(folder), dtype), folder).merge_and_unload()
    return AutoModelForCausalLM.from_pretrained(resolve(base), dtype=dtype)


def is_adapter(folder: Path) -> bool:
    """Whether ``folder`` holds a peft adapter and no whole model."""
    return (folder / ADAPTER).is_file()


def below(folder: Path) -> str:
    """The model that the adapter in ``folder`` was trained on, as the adapter says."""
    return str(json.loads((folder / ADAPTER).read_text())["base_model_name_or_path"])


def load_adapted(folder: Path, base: str | PreTrainedModel) -> Adapted:
    """The adapter in ``folder`` on ``base``, not merged; a model that is in memory is not loaded again.

    Raises ``ValueError`` for adapters that are more than the engine computes.
    """
    config = LoraConfig.from_pretrained(str(folder))
    foreign = [name for name in FOREIGN if getattr(config, name)]
    if foreign or config.bias != "none":
        raise ValueError(f"{folder / ADAPTER}: an adapter with {', '.join(foreign) or 'bias'} is not computed here")
    model = load_model(base) if isinstance(base, str) else base
    return Adapted(model, checkpoint_weights(folder), config.lora_alpha / config.r)


def load_tokenizer(base: str) -> PreTrainedTokenizerFast:
    """The tokenizer that belongs to ``base``."""
    return AutoTokenizer.from_pretrained(resolve(base))


def checkpoint_weights(folder: Path) -> dict[str, torch.Tensor]:
    """The weights of an exported policy by name, tied ones included; of a LoRA policy its adapter's."""
    if is_adapter(folder):
        return load_file(folder / WEIGHTS)
    return AutoModelForCausalLM.from_pretrained(folder).state_dict()
