"""A chat template of Qwen3's kind, with tools, thoughts and tool results, and a tokenizer of bytes that has it."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

QWEN3 = (Path(__file__).parent / "qwen3.jinja").read_text(encoding="utf-8")
PLAIN = [f"<{name}>" for tag in ("tool_call", "tool_response", "think") for name in (tag, f"/{tag}")]
"""Tokens of their own that are text, as in Qwen3: decoding keeps them."""


def qwen3_tokenizer(template: str | None = QWEN3) -> PreTrainedTokenizerFast:
    """Bytes, and the added tokens of Qwen3."""
    alphabet = {sign: index for index, sign in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(alphabet, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )
    made.add_tokens([AddedToken(name, special=False, normalized=False) for name in PLAIN])
    return made
