"""Supervised fine-tuning of base models on demonstrations: ``troupe warm-start``.

Each step plays train tasks of one world with demonstrators in every role, whose skill is drawn message by message, and
fits the messages on their authors' prompts.  The worlds and the recipe of each model are in :mod:`.curriculum`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, TypeVar

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

from ..errors import ConfigError
from ..experience import Message
from ..models.bases.open_tokenizer import train_tokenizer, with_chat_template
from ..models.bases.tiny import build_model, build_tokenizer
from .curriculum import Curriculum, messages
from .recipe import Recipe

log = logging.getLogger(__name__)
disable_progress_bar()

T = TypeVar("T")

STATE, RECIPE = "state.pt", "recipe.json"
SHOWN_EVERY_S = 10.0
"""Seconds between two lines of progress."""


class Demonstrations(Dataset):
    """Step -> ``micro_batches`` pairs (input_ids, labels); see :func:`collate`."""

    def __init__(self, curriculum: Curriculum, tokenizer: PreTrainedTokenizerFast, first: int = 0) -> None:
        self.curriculum, self.recipe, self.tokenizer, self.first = curriculum, curriculum.recipe, tokenizer, first

    def __len__(self) -> int:
        return self.recipe.steps - self.first

    def __getitem__(self, index: int) -> list[tuple[Tensor, Tensor]]:
        if index >= len(self):
            raise IndexError(index)
        recipe, step = self.recipe, self.first + index
        rng = Random(f"warm start/{recipe.seed}/{step}")
        world = self.curriculum.world(step, rng)
        examples = asyncio.run(messages(world, recipe.batch_size, partial(recipe.skill, step), rng))
        return collate(self.tokenizer, examples[: recipe.batch_size], recipe.micro_batches)


def collate(
    tokenizer: PreTrainedTokenizerFast, examples: list[tuple[list[Message], str]], micro_batches: int
) -> list[tuple[Tensor, Tensor]]:
    """``micro_batches`` pairs (input_ids, labels), both (B, T) int64, short examples first.

    Right-padded to multiples of 8 (few shapes suit compilation); labels are -100 on prompts and padding.
    """
    rows = [encoded(tokenizer, *example) for example in examples]
    rows.sort(key=lambda row: len(row[0]) + len(row[1]))
    batches = []
    size = -(-len(rows) // micro_batches)
    for part in (rows[i : i + size] for i in range(0, len(rows), size)):
        width = -(-(len(part[-1][0]) + len(part[-1][1])) // 8) * 8
        input_ids = torch.full((len(part), width), tokenizer.pad_token_id)
        labels = torch.full((len(part), width), -100)
        for i, (prompt, answer) in enumerate(part):
            end = len(prompt) + len(answer)
            input_ids[i, :end] = torch.tensor(prompt + answer)
            labels[i, len(prompt) : end] = torch.tensor(answer)
        batches.append((input_ids, labels))
    return batches


def encoded(tokenizer: PreTrainedTokenizerFast, chat: list[Message], text: str) -> tuple[list[int], list[int]]:
    """The ids of a prompt and of its message, which ends with the end token.

    Raises ``ValueError`` for words outside of a closed vocabulary.
    """
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    message = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in [*prompt, *message]:
        raise ValueError(f"the tokenizer has no token for a word of {chat} or of {text!r}")
    return prompt, message


def loss_of(model: Qwen3ForCausalLM, input_ids: Tensor, labels: Tensor) -> Tensor:
    """Summed cross-entropy of the labelled tokens, nats."""
    # Right padding under a causal mask cannot be seen by real tokens, so no attention mask is needed.
    logits = model.lm_head(model.model(input_ids=input_ids).last_hidden_state[:, :-1])
    return torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1), ignore_index=-100, reduction="sum"
    )


def optimizers(model: Qwen3ForCausalLM, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon on the layers' matrices, AdamW on the rest."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = set(matrices)
    rest = [p for p in model.parameters() if p not in others]
    return [
        torch.optim.Muon(matrices, lr=recipe.muon_learning_rate, weight_decay=recipe.weight_decay),
        torch.optim.AdamW(rest, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


class WarmStart:
    """The pretraining loop; it continues from ``work/state.pt``, which is written every ``save_every`` steps.

    ``origin`` is what identifies the demonstrations beside the recipe, fit for JSON.  Raises :class:`ConfigError` where
    ``work`` holds the state of another warm start.
    """

    def __init__(
        self,
        curriculum: Curriculum,
        work: Path,
        origin: Mapping[str, Any],
        *,
        compiled: bool = False,
        save_every: int = 250,
    ) -> None:
        recipe = curriculum.recipe
        self.curriculum, self.recipe, self.work, self.save_every = curriculum, recipe, work, save_every
        self.settings = settings_of(recipe, origin)
        state = self._saved()
        self.tokenizer = tokenizer_of(curriculum) if state is None else _restored(curriculum, state["tokenizer"])
        self.model = build_model(
            self.tokenizer, hidden=recipe.hidden, layers=recipe.layers, heads=recipe.heads, seed=recipe.seed
        )
        self.optimizers = optimizers(self.model, recipe)
        self.peaks = [[group["lr"] for group in o.param_groups] for o in self.optimizers]
        self.loss: Callable[..., Tensor] = torch.compile(loss_of) if compiled else loss_of
        self.step, self.seconds, self.stop_requested = 0, 0.0, False
        if state is not None:
            self.step, self.seconds = state["step"], state["seconds"]
            self.model.load_state_dict(state["model"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)

        examples = [encoded(self.tokenizer, *example) for example in examples_of(curriculum, 200)]
        self.prompt_tokens = [len(prompt) for prompt, _ in examples]
        self.longest_message = max(len(message) for _, message in examples)
        """Tokens of the longest of 200 experts' messages, its end token included."""
        longest = max(len(prompt) + len(message) for prompt, message in examples)
        if longest > (context := self.model.config.max_position_embeddings):
            raise ConfigError(f"a prompt and its message have {longest} tokens, and the model reads {context}")

    def about(self) -> str:
        """One line about the model and its demonstrations."""
        recipe, lengths = self.recipe, self.prompt_tokens
        return (
            f"a model of {self.model.num_parameters():,} parameters and {len(self.tokenizer)} tokens; prompts of "
            f"{fmean(lengths):.0f} tokens (at most {max(lengths)}), messages of up to {self.longest_message}; "
            f"{recipe.steps} steps of {recipe.batch_size} messages"
            + (f", {self.step} of them done" if self.step else "")
        )

    def run(self, until: int | None = None) -> None:
        """Train to step ``until`` (default: the recipe's end), or until ``stop_requested`` after a step."""
        until = self.recipe.steps if until is None else until
        demonstrations = Demonstrations(self.curriculum, self.tokenizer, self.step)
        started, before, first = time.perf_counter(), self.seconds, self.step
        shown = started
        recent: dict[str, list[float]] = {}
        for batches in _elsewhere(demonstrations):
            if self.step >= until or self.stop_requested:
                break
            recent.setdefault(self.curriculum.name(self.step), []).append(self.fit(batches))
            self.step += 1
            self.seconds = before + time.perf_counter() - started
            if time.perf_counter() - shown > SHOWN_EVERY_S or self.step == until:
                shown = time.perf_counter()
                losses = ", ".join(f"{name} {sum(v) / len(v):.3f}" for name, v in sorted(recent.items()))
                pace = (self.seconds - before) / (self.step - first)
                log.info("step %d/%d  loss %s  ETA %.0f s", self.step, until, losses, pace * (until - self.step))
                recent = {}
            if self.step % self.save_every == 0:
                self.save()
        self.save()

    def fit(self, batches: list[tuple[Tensor, Tensor]]) -> float:
        """One optimisation step; returns the mean loss per labelled token, nats."""
        rate = self.recipe.rate(self.step)
        for optimizer, peaks in zip(self.optimizers, self.peaks, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = peak * rate
        tokens = sum(int((labels != -100).sum()) for _, labels in batches)
        total = 0.0
        for input_ids, labels in batches:
            loss = self.loss(self.model, input_ids, labels) / tokens
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return total

    def save(self) -> None:
        """Write the resumable state, whole or not at all."""
        self.work.mkdir(parents=True, exist_ok=True)
        state = {
            "settings": self.settings,
            "step": self.step,
            "seconds": self.seconds,
            "tokenizer": self.tokenizer.backend_tokenizer.to_str(),
            "model": self.model.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers],
        }
        torch.save(state, self.work / "state.tmp")
        os.replace(self.work / "state.tmp", self.work / STATE)

    def _saved(self) -> dict[str, Any] | None:
        """The saved state, if any."""
        path = self.work / STATE
        if not path.is_file():
            return None
        state: dict[str, Any] = torch.load(path, weights_only=True)
        check_settings(str(path), state.get("settings", {}), self.settings, "delete it to begin anew")
        return state


def settings_of(recipe: Recipe, origin: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies a warm start; ``steps`` come first, since a user gives these and not the steps of each phase."""
    return {"steps": recipe.steps, **asdict(recipe), **origin}


def check_settings(place: str, saved: Mapping[str, Any], wanted: Mapping[str, Any], remedy: str) -> None:
    """Raise :class:`ConfigError`, naming the first key that differs, unless ``saved`` are the ``wanted`` settings."""
    for key in wanted:
        if saved.get(key) != wanted[key]:
            raise ConfigError(
                f"{place} is of a warm start with {key}={saved.get(key)}, not {wanted[key]}; {remedy}, or choose "
                "another folder with out="
            )


def is_finished(folder: Path, recipe: Recipe, origin: Mapping[str, Any]) -> bool:
    """Whether ``folder`` holds the model of this recipe.  Raises :class:`ConfigError` where it holds another."""
    path = folder / RECIPE
    if not path.is_file():
        return False
    check_settings(str(folder), json.loads(path.read_text()), settings_of(recipe, origin), "again=true replaces it")
    return True


def tokenizer_of(curriculum: Curriculum) -> PreTrainedTokenizerFast:
    """The tokenizer of the curriculum's words, or one that is trained on demonstrations of its first world."""
    if curriculum.words is not None:
        return build_tokenizer(curriculum.words)
    examples = examples_of(curriculum, 2000)
    texts = [message["content"] for chat, _ in examples for message in chat]
    return train_tokenizer([*texts, *(text for _, text in examples)], curriculum.vocabulary)


def examples_of(curriculum: Curriculum, count: int) -> list[tuple[list[Message], str]]:
    """At least ``count`` prompts of the first world with experts' messages.

    They are asked for in a process of their own: what the world starts, such as a sandbox, ends with it, and the world
    here is as new.
    """
    rng = Random(f"examples/{curriculum.recipe.seed}")
    world = curriculum.world(0, rng)

    class Examples(Dataset[list[tuple[list[Message], str]]]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> list[tuple[list[Message], str]]:
            return asyncio.run(messages(world, count, lambda _: "expert", rng))

    (examples,) = _elsewhere(Examples())
    return examples


def _restored(curriculum: Curriculum, tokenizer: str) -> PreTrainedTokenizerFast:
    """The tokenizer of a saved state: training one again gives its tokens in another order."""
    if curriculum.words is not None:
        return build_tokenizer(curriculum.words)
    return with_chat_template(Tokenizer.from_str(tokenizer))


def _elsewhere(data: Dataset[T]) -> Iterator[T]:
    """The items of ``data``, made in a process of their own.

    An error of it, which contains where it was raised, ends the process, too: with its traceback here the loader would
    live on, and wait at exit for a process that ignores signals.
    """
    try:
        yield from DataLoader(
            data, batch_size=None, num_workers=1, prefetch_factor=8, worker_init_fn=_ignore_interrupts
        )
    except Exception as error:
        raise error.with_traceback(None) from None


def _ignore_interrupts(worker: int) -> None:
    """Ctrl-C reaches every process of a terminal, and a batch system's SIGTERM every one of a job; the one that trains
    decides what happens.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def code_of(folder: Path) -> str:
    """The hash of the user's code with which the finished model in ``folder`` was made."""
    code: str = json.loads((folder / RECIPE).read_text()).get("code", "")
    return code


def export(start: WarmStart, folder: Path, code: str = "") -> None:
    """Write the model as transformers loads it, its tokenizer, the recipe and the checksums; ``code`` is the hash of
    the user's code.
    """
    folder.mkdir(parents=True, exist_ok=True)
    start.model.save_pretrained(folder)
    start.tokenizer.save_pretrained(folder)
    recipe = start.settings | {"seconds": round(start.seconds), "code": code}
    (folder / RECIPE).write_text(json.dumps(recipe, indent=2) + "\n")
    names = sorted(path.name for path in folder.iterdir() if path.suffix in {".json", ".safetensors", ".jinja"})
    sums = {n: sha256((folder / n).read_bytes()).hexdigest() for n in names if n != "checksums.json"}
    (folder / "checksums.json").write_text(json.dumps(sums, indent=2) + "\n")
