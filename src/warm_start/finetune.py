"""Supervised fine-tuning of base models on demonstrations: ``troupe warm-start``.

Each step plays train tasks of one world with demonstrators in every role, whose skill is drawn message by message, and
fits the messages on their authors' prompts.  The worlds and the recipe of each model are in :mod:`.curriculum`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from ..experience import Message
from ..models.tiny import build_model, build_tokenizer
from .curriculum import Curriculum, Recipe, messages

log = logging.getLogger(__name__)


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

    Right-padded to multiples of 16 (few shapes suit compilation); labels are -100 on prompts and padding.
    """
    vocab = tokenizer.get_vocab()
    rows = []
    for chat, text in examples:
        prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True).split()
        rows.append(([vocab[w] for w in prompt], [vocab[w] for w in [*text.split(), tokenizer.eos_token]]))
    rows.sort(key=lambda row: len(row[0]) + len(row[1]))
    batches = []
    size = -(-len(rows) // micro_batches)
    for part in (rows[i : i + size] for i in range(0, len(rows), size)):
        width = -(-(len(part[-1][0]) + len(part[-1][1])) // 16) * 16
        input_ids = torch.full((len(part), width), tokenizer.pad_token_id)
        labels = torch.full((len(part), width), -100)
        for i, (prompt, answer) in enumerate(part):
            end = len(prompt) + len(answer)
            input_ids[i, :end] = torch.tensor(prompt + answer)
            labels[i, len(prompt) : end] = torch.tensor(answer)
        batches.append((input_ids, labels))
    return batches


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
    matrix_ids = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in matrix_ids]
    return [
        torch.optim.Muon(matrices, lr=recipe.muon_learning_rate, weight_decay=recipe.weight_decay),
        torch.optim.AdamW(rest, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


class WarmStart:
    """The pretraining loop; resumable from ``out/state.pt``, which is written every ``save_every`` steps."""

    def __init__(self, curriculum: Curriculum, out: Path, *, compiled: bool = False, save_every: int = 250) -> None:
        recipe = curriculum.recipe
        self.curriculum, self.recipe, self.out, self.save_every = curriculum, recipe, out, save_every
        self.tokenizer = build_tokenizer(curriculum.words)
        self.model = build_model(
            self.tokenizer, hidden=recipe.hidden, layers=recipe.layers, heads=recipe.heads, seed=recipe.seed
        )
        self.optimizers = optimizers(self.model, recipe)
        self.peaks = [[group["lr"] for group in o.param_groups] for o in self.optimizers]
        self.loss: Callable[..., Tensor] = torch.compile(loss_of) if compiled else loss_of
        self.step, self.seconds = 0, 0.0

    def run(self, until: int | None = None) -> None:
        """Train to step ``until`` (default: the recipe's end)."""
        until = self.recipe.steps if until is None else until
        demonstrations = Demonstrations(self.curriculum, self.tokenizer, self.step)
        data = DataLoader(demonstrations, batch_size=None, num_workers=1, prefetch_factor=8)
        started, before, first = time.perf_counter(), self.seconds, self.step
        recent: dict[str, list[float]] = {}
        for batches in data:
            if self.step >= until:
                break
            recent.setdefault(self.curriculum.name(self.step), []).append(self.fit(batches))
            self.step += 1
            self.seconds = before + time.perf_counter() - started
            if self.step % 50 == 0:
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
        self.out.mkdir(parents=True, exist_ok=True)
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "model": self.model.state_dict(),
            "optimizers": [o.state_dict() for o in self.optimizers],
        }
        torch.save(state, self.out / "state.tmp")
        os.replace(self.out / "state.tmp", self.out / "state.pt")

    def load(self) -> None:
        """Go on from the saved state."""
        state = torch.load(self.out / "state.pt", weights_only=True)
        self.step, self.seconds = state["step"], state["seconds"]
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


def export(start: WarmStart, folder: Path) -> None:
    """Write the model as transformers loads it, its tokenizer, the recipe and the checksums."""
    folder.mkdir(parents=True, exist_ok=True)
    start.model.save_pretrained(folder)
    start.tokenizer.save_pretrained(folder)
    recipe = asdict(start.recipe) | {"seconds": round(start.seconds)}
    (folder / "recipe.json").write_text(json.dumps(recipe, indent=2) + "\n")
    names = sorted(path.name for path in folder.iterdir() if path.suffix in {".json", ".safetensors", ".jinja"})
    sums = {n: sha256((folder / n).read_bytes()).hexdigest() for n in names if n != "checksums.json"}
    (folder / "checksums.json").write_text(json.dumps(sums, indent=2) + "\n")
