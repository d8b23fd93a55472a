"""Write ``one_step.md``: one Sokoban candidate from its prompt to its gradient, with the values of a real iteration.

``make docs`` writes it; ``tests/test_documentation.py`` plays the iteration again and compares.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from string import Template
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from hydra import compose, initialize_config_module
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from troupe.experience import Candidate, Node, Sample, Task, TokenBatch
from troupe.loop import TrainLoop
from troupe.models.learning.policy import compute_loss
from troupe.setup.assembly import build

HERE = Path(__file__).parent
PAGE, TEMPLATE = HERE.parent / "one_step.md", HERE / "one_step.template"
SETTINGS = [
    "experiment=sokoban_specialized",
    "seed=0",
    "threads=1",
    "name=one_step",
    "loop.tasks_per_iteration=4",
    "algorithm.update.mini_batches=1",
]


@dataclass(frozen=True)
class Step:
    """What one iteration made of one candidate."""

    task: Task
    messages: Sequence[Mapping[str, str]]
    board: Sequence[str]
    node: Node
    index: int
    """Of the candidate in its node."""
    groups: Sequence[Sequence[Sample]]
    """Of the candidate's policy."""
    sample: Sample
    batch: TokenBatch
    """The micro-batch that holds the candidate."""
    row: int
    """Of the candidate in the batch's (B,) tensors."""
    logprobs: Tensor
    """(C,) nats, the learner's."""
    gradient: Tensor
    """(C,), the loss by ``logprobs``."""
    metrics: Mapping[str, float]
    """Of the policy's update."""
    tokenizer: PreTrainedTokenizerBase

    @property
    def candidate(self) -> Candidate:
        return self.node.candidates[self.index]

    def words(self, ids: Sequence[int]) -> list[str]:
        """The text of each token."""
        return [self.tokenizer.decode([token]) for token in ids]


async def one_iteration(loop: TrainLoop) -> Step:
    """Play and learn from one iteration, and follow the best candidate of the first prompt whose K rewards differ."""
    await loop.team.load_weights()
    episodes = await loop.collect()
    loop.credit(episodes)
    batches = loop.router.route(episodes, loop.credit.key, loop.credit.weight)
    episode, node = next(
        (episode, node) for episode in episodes for node in episode.nodes if any(c.advantage for c in node.candidates)
    )
    index = max(range(len(node.candidates)), key=lambda i: node.candidates[i].reward)
    policy = loop.router.team[node.agent]
    ids = node.candidates[index].completion.token_ids
    losses: list[tuple[TokenBatch, Tensor]] = []
    gradients: list[Tensor] = []  # of the losses, in their order

    def recorded(objective: Any, batch: TokenBatch, scores: tuple[Tensor, Tensor | None], *rest: Any) -> Any:
        scores[0].register_hook(gradients.append)
        losses.append((batch, scores[0]))
        return compute_loss(objective, batch, scores, *rest)

    only = {name: groups if name == policy else [] for name, groups in batches.items()}
    with patch("troupe.models.learning.policy.compute_loss", recorded):
        updates = await loop.team.update(only, 0, in_order=True)
    batch, row, logprobs, gradient = next(
        (batch, b, logprobs, gradient)
        for (batch, logprobs), gradient in zip(losses, gradients, strict=True)
        for b in range(len(batch.targets))
        if tuple(batch.targets[b][batch.mask[b]].tolist()) == ids and _prompt(batch, b) == node.prompt_ids
    )
    world = loop.world.fork()
    world.reset(episode.task)
    groups = batches[policy]
    return Step(
        task=episode.task,
        messages=world.observe(node.agent),
        board=world.picture(),
        node=node,
        index=index,
        groups=groups,
        sample=next(s for group in groups for s in group if s.token_ids == ids and s.prompt_ids == node.prompt_ids),
        batch=batch,
        row=row,
        logprobs=logprobs[row].detach()[batch.mask[row]],
        gradient=gradient[row][batch.mask[row]],
        metrics=updates[policy],
        tokenizer=loop.team.tokenizers[policy],
    )


def _prompt(batch: TokenBatch, b: int) -> tuple[int, ...]:
    """What the first token of candidate ``b`` is predicted from: the tokens that its source sees."""
    source, ids = int(batch.sources[b][0]), batch.input_ids.tolist()
    return tuple(ids[k] for each in batch.segments for k in range(each.start, each.end) if k <= source < each.stop)


def values(step: Step, update: Mapping[str, Any], rule: Mapping[str, Any], alpha: float) -> dict[str, Any]:
    """What the template shows; ``update``, ``rule`` and ``alpha`` are the algorithm's settings."""
    candidate, node, batch = step.candidate, step.node, step.batch
    completion, sample = candidate.completion, step.sample
    rewards = [each.reward for each in node.candidates]
    words = step.words(completion.token_ids)
    count = len(words)
    assert candidate.advantage is not None
    return {
        "command": f"```bash\ntroupe train {' '.join(SETTINGS)}\n```",
        "task_id": node.task_id,
        "board": "\n".join(step.board),
        "messages": "\n".join(f"{each['role']}: {each['content']}" for each in step.messages),
        "k": len(node.candidates),
        "prompt": _columns(("words", step.words(node.prompt_ids)), ("ids", node.prompt_ids)),
        "number": step.index + 1,
        "tokens": _table(zip(map(_code, words), completion.token_ids, map(_nats, completion.logprobs), strict=True)),
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "version": completion.version,
        "policy": completion.policy,
        "alpha": alpha,
        "candidates": _table(
            (i, _code(each.completion.text), each.team, _number(each.local), _number(each.reward), _number(advantage))
            for i, each in enumerate(node.candidates, 1)
            if (advantage := each.advantage) is not None
        ),
        "mean": _number(mean(rewards)),
        "std": _number(stdev(rewards)),
        "floor": rule["std_floor"],
        "reward": _number(candidate.reward),
        "advantage": _number(candidate.advantage),
        "groups": len(step.groups),
        "weight": f"{sample.weight:.5f}",
        "samples": sum(map(len, step.groups)),
        "packed": _packed(step),
        "input_shape": " x ".join(map(str, batch.input_ids.shape)),
        "target_shape": " x ".join(map(str, batch.targets.shape)),
        "logprobs": _table(
            zip(map(_code, words), map(_nats, completion.logprobs), map(_nats, step.logprobs.tolist()), strict=True)
        ),
        "difference": _bound((step.logprobs - torch.tensor(completion.logprobs)).abs().max().item()),
        "length": count,
        "by_hand": f"{-sample.weight * candidate.advantage / count:.5f}",
        "gradient": _same([f"{each:.5f}" for each in step.gradient.tolist()]),
        "loss": _number(step.metrics["loss"]),
        "norm": f"{step.metrics['grad_norm']:.3f}",
        "clip_norm": update["clip_norm"],
    }


def _packed(step: Step) -> str:
    """The tree of tokens that holds the candidate."""
    batch, source = step.batch, int(step.batch.sources[step.row][0])
    roots = [i for i, position in enumerate(batch.positions.tolist()) if position == 0]
    start = max(root for root in roots if root <= source)
    end = min([root for root in roots if root > source], default=len(batch.input_ids))
    ids, positions = batch.input_ids[start:end].tolist(), batch.positions[start:end].tolist()
    pieces = [each for each in batch.segments if start <= each.start < end]
    segments = [number for number, each in enumerate(pieces) for _ in range(each.start, each.end)]
    return _columns(
        ("words", step.words(ids)), ("input_ids", ids), ("positions", positions), ("segments", segments), width=19
    )


def _columns(*lines: tuple[str, Sequence[Any]], width: int = 100) -> str:
    """Lists of equal length, one below the other; those longer than ``width`` go on below."""
    name_width = max(len(name) for name, _ in lines)
    blocks = []
    for start in range(0, len(lines[0][1]), width):
        parts = [[str(value) for value in values[start : start + width]] for _, values in lines]
        widths = [max(map(len, column)) for column in zip(*parts, strict=True)]
        blocks.append(
            "\n".join(
                f"{name:{name_width}}  " + " ".join(f"{text:>{w}}" for text, w in zip(part, widths, strict=True))
                for (name, _), part in zip(lines, parts, strict=True)
            )
        )
    return "\n\n".join(blocks)


def _table(rows: Iterable[Iterable[Any]]) -> str:
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def _code(text: str) -> str:
    return f"`{text}`"


def _nats(value: float) -> str:
    return f"{round(value, 4) + 0.0:.4f}"  # + 0.0: no negative zero


def _number(value: float) -> str:
    return f"{round(value, 3) + 0.0:.3f}"


def _bound(value: float) -> str:
    """The least power of ten above ``value``, from 1e-05: below, it depends on the processor."""
    return f"{10.0 ** max(-5, math.ceil(math.log10(value))):.0e}"


def _same(texts: Sequence[str]) -> str:
    """The one text that all of ``texts`` are.  Raises ``ValueError`` where they differ."""
    (text,) = set(texts)
    return text


def page() -> str:
    """The page.  The iteration takes some seconds."""
    with TemporaryDirectory() as folder, initialize_config_module("troupe.configs", version_base="1.3"):
        cfg = compose("train", overrides=[*SETTINGS, f"run_dir={folder}/run"])
        loop = build(cfg)
        try:
            step = asyncio.run(one_iteration(loop))
        finally:
            loop.directory.release()
    algorithm = cfg.algorithm
    shown = values(step, algorithm["update"], algorithm["credit"], algorithm["sampler"]["alpha"])
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(shown)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
