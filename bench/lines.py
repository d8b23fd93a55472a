"""A world in which every message has the same length, and training runs in it: two runs differ in nothing else.

All agents write a line at the same time; the team's reward is the mean number of its words, so that candidates hardly
ever earn the same.  The base model is a Qwen3 of random weights, hidden 128 and 4 layers, without an end of sequence.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any

import yaml
from hydra import compose
from omegaconf import DictConfig
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from troupe import loop as loop_module
from troupe.envs.base import StepResult
from troupe.envs.turns import TurnTakingWorld, chat
from troupe.experience import Message, Split, Task
from troupe.loop import TrainLoop
from troupe.models.bases.tiny import build_model, build_tokenizer
from troupe.setup.assembly import build
from troupe.setup.composition import configurations


def names(agents: int) -> tuple[str, ...]:
    return tuple(f"agent{index}" for index in range(agents))


def score(texts: Sequence[str], vocabulary: int) -> float:
    """The mean number of the words of ``texts``, of those that there are."""
    numbers = [int(word[1:]) for text in texts for word in text.split() if word[1:].isdigit()]
    return fmean(numbers or [0]) / vocabulary


class Lines(TurnTakingWorld):
    """``agents`` write at the same time, in each of ``horizon`` turns, to prompts of ``prompt`` tokens that begin
    differently."""

    name = "lines"

    def __init__(self, *, agents: int, prompt: int, vocabulary: int, horizon: int) -> None:
        super().__init__(stages=(names(agents),), horizon=horizon)
        self.prompt, self.vocabulary = prompt, vocabulary
        self._words = ""

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        rngs = {f"{self.name}-{split}-{seed}-{i}": Random(f"{split}/{seed}/{i}") for i in range(count)}
        return [Task(name, split, {"words": self._draw(rng)}) for name, rng in rngs.items()]

    def _draw(self, rng: Random) -> str:
        """All of a prompt but the agent's name, the turn and the template's last token."""
        return " ".join(f"w{rng.randrange(self.vocabulary)}" for _ in range(self.prompt - 3))

    def reset(self, task: Task) -> None:
        self._begin()
        self._words = task.data["words"]

    def _prompt(self, agent: str) -> list[Message]:
        return chat(agent, f"w{self.turn} {self._words}")

    async def _act(self, actions: Mapping[str, str]) -> StepResult:
        team = score(list(actions.values()), self.vocabulary)
        self._next_turn()
        return StepResult(dict.fromkeys(self.agents, 0.0), team, self._done, False)

    def _state(self) -> tuple[Hashable, ...]:
        return (self._words,)


@cache
def base(vocabulary: int, agents: int, context: int) -> Path:
    """The folder of a base model."""
    tokenizer, model = new_model(vocabulary, agents, context)
    folder = Path(mkdtemp(prefix="troupe-bench-"))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def new_model(vocabulary: int, agents: int, context: int) -> tuple[PreTrainedTokenizerFast, Qwen3ForCausalLM]:
    tokenizer = build_tokenizer([*(f"w{i}" for i in range(vocabulary)), *names(agents)])
    tokenizer.model_max_length = context
    model = build_model(tokenizer, hidden=128, layers=4, heads=4, seed=0)
    tokenizer.eos_token = model.config.eos_token_id = model.generation_config.eos_token_id = None
    return tokenizer, model


@dataclass(frozen=True)
class Setting:
    """One iteration's work; ``prompt`` and ``completion`` in tokens."""

    agents: int = 2
    turns: int = 1
    prompt: int = 128
    completion: int = 32
    k: int = 4
    tasks: int = 8
    vocabulary: int = 150
    algorithm: str = "at_grpo"
    regime: str = "specialized"
    model: Path | None = None
    """The base model; None: a small one."""
    words: tuple[str, ...] = ()
    """Further words of the command."""

    @property
    def folder(self) -> Path:
        return base(self.vocabulary, self.agents, max(512, self.prompt + self.completion + 1))

    def loop(self) -> TrainLoop:
        """A run that has not begun."""
        return build(self.composed())

    def composed(self) -> DictConfig:
        """Its configuration."""
        place = Path(mkdtemp(prefix="troupe-bench-"))
        sampling = {"max_tokens": self.completion}
        policy = {
            "defaults": ["laptop", "_self_"],
            "base": str(self.model or self.folder),
            "sampling": {"train": sampling, "eval": sampling},
        }
        world = {
            "_world_": {"agents": list(names(self.agents)), "policies": {"laptop": "lines"}},
            "_target_": "lines.Lines",
            "agents": self.agents,
            "prompt": self.prompt,
            "vocabulary": self.vocabulary,
            "horizon": self.turns,
        }
        for name, content in (("policy/lines.yaml", policy), ("env/lines.yaml", world)):
            (place / name).parent.mkdir(parents=True)
            (place / name).write_text(yaml.safe_dump(content))
        words = ["env=lines", f"algorithm={self.algorithm}", f"regime={self.regime}", f"algorithm.sampler.k={self.k}"]
        words += [f"loop.tasks_per_iteration={self.tasks}", "algorithm.update.mini_batches=1", "diagnostics=off"]
        words += ["name=bench", f"run_dir={place / 'run'}", "threads=null", *self.words]
        with configurations(str(place)):
            return compose("train", overrides=words)


class Runs:
    """Iterations of several runs in one process, with ``clock`` in the place of the loop's own."""

    def __init__(self, settings: Mapping[str, Setting], clock: Callable[[], float] = time.perf_counter) -> None:
        loop_module.time = SimpleNamespace(perf_counter=clock, process_time=clock)
        self.clock, self.runner = clock, asyncio.Runner()
        self.loops = {name: setting.loop() for name, setting in settings.items()}
        self.expected = {name: each.k * each.completion for name, each in settings.items()}

    def iterate(self, name: str) -> dict[str, Any]:
        """An iteration of one run: its metrics, with ``time/iteration_s``."""

        async def iteration() -> dict[str, Any]:
            loop, started = self.loops[name], self.clock()
            row, loop.progress.row = await loop.run_iteration(), {}
            return row | {"time/iteration_s": self.clock() - started}

        row = self.runner.run(iteration())
        tokens = row["rollout/tokens"]
        assert tokens == row["rollout/completions"] / self.loops[name].sampler.k * self.expected[name], tokens
        return row

    def close(self) -> None:
        async def close() -> None:
            for loop in self.loops.values():
                await loop.team.close()

        self.runner.run(close())
        self.runner.close()
        for loop in self.loops.values():
            loop.directory.release()
