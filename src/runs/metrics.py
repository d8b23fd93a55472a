"""The metrics of rollouts and updates."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from ..experience import Episode, Failure


def rollout_metrics(episodes: Sequence[Episode], seconds: float) -> dict[str, float]:
    """Flat ``rollout/...`` metrics.

    ``success`` is that of sampled episodes (independent episodes, full joint trees).  Trees in which the best of K
    candidates is continued have ``best_of_k_success`` instead: it is far above the policies' own success, and never to
    be reported as such.  Completions and tokens count everything that a model generated; averages are over candidates,
    those of scripted policies among them, but ``cut_prompts`` and ``retokenised_prompts``, shares of the prompts.  No
    other metric counts the ``lost_episodes``.  The tokens of remote policies are unknown here, and are in no sum: their
    engines count them.
    """
    lost = sum(episode.failure is not None for episode in episodes)
    episodes = [episode for episode in episodes if episode.failure is None]
    leaves = [leaf for episode in episodes for leaf in episode.leaves]
    candidates = [(node, candidate) for episode in episodes for node, candidate in episode.candidates()]
    nodes = [node for episode in episodes for node in episode.nodes]
    auxiliary = [pair for episode in episodes for pair in episode.auxiliary]
    tokens = sum(len(candidate.completion.token_ids) for _, candidate in candidates)
    tokens += sum(len(completion.token_ids) for _, completion in auxiliary)
    prompt_tokens = sum(
        len(node.prompt_ids)
        for episode in episodes
        for node in episode.nodes
        if not node.candidates[0].completion.text_only
    )
    success = "best_of_k_success" if any(episode.best_of_k for episode in episodes) else "success"
    row = {
        f"rollout/{success}": sum(chance * outcome.success for chance, outcome in leaves) / len(episodes),
        "rollout/turns": sum(chance * outcome.turns for chance, outcome in leaves) / len(episodes),
        "rollout/tasks": len({episode.task.task_id for episode in episodes}),
        "rollout/lost_episodes": lost,
        "rollout/completions": sum(episode.generated for episode in episodes),
        "rollout/tokens": tokens,
        "rollout/prompt_tokens": prompt_tokens + sum(length for length, each in auxiliary if not each.text_only),
        "rollout/env_steps": sum(episode.env_steps for episode in episodes),
        "rollout/tokens_per_s": tokens / seconds,
        "rollout/truncated_ratio": fmean(candidate.completion.finish_reason == "length" for _, candidate in candidates),
    }
    for world in sorted({episode.task.world for episode in episodes} - {""}):
        row[f"rollout/tasks_{world}"] = len({e.task.task_id for e in episodes if e.task.world == world})
    for agent in sorted({node.agent for node, _ in candidates}):
        own = [candidate for node, candidate in candidates if node.agent == agent]
        row[f"rollout/{agent}/reward"] = fmean(candidate.reward for candidate in own)
        row[f"rollout/{agent}/outcome_reward"] = fmean(candidate.team for candidate in own)
        row[f"rollout/{agent}/local_reward"] = fmean(candidate.local + candidate.own_outcome for candidate in own)
        row[f"rollout/{agent}/cut_prompts"] = fmean(node.cut for node in nodes if node.agent == agent)
        row[f"rollout/{agent}/retokenised_prompts"] = fmean(node.retokenised for node in nodes if node.agent == agent)
        if not own[0].completion.text_only:
            row[f"rollout/{agent}/tokens_per_message"] = fmean(len(candidate.completion.token_ids) for candidate in own)
        for name in dict.fromkeys(name for candidate in own for name in candidate.info):  # worlds may differ in them
            row[f"rollout/{agent}/{name}"] = fmean(c.info[name] for c in own if name in c.info)
    return row


def update_metrics(
    policies: Mapping[str, Mapping[str, float]], critics: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """Flat ``train/POLICY/...`` and ``critic/NAME/...`` metrics of updates, by name; ``mismatch/...`` and
    ``diagnostics/...``, which are of agents, stay as they are, and ``faults/...`` are summed.
    """
    row: dict[str, float] = {}
    for prefix, updates in (("train", policies), ("critic", critics)):
        for name, values in updates.items():
            for key, value in values.items():
                if key.startswith("faults/"):
                    row[key] = row.get(key, 0) + value
                else:
                    row[key if key.startswith(("mismatch/", "diagnostics/")) else f"{prefix}/{name}/{key}"] = value
    return row


def fault_metrics(failures: Sequence[Failure], observers: Mapping[str, int]) -> dict[str, float]:
    """Flat ``faults/...`` metrics: episodes lost to a world and to a sandbox, and failures of ``observers`` by name.

    Engines count their failures themselves, as engines and updates do how often they ran out of memory; here they are
    0.
    """
    counts = Counter(failure.kind for failure in failures)
    return {
        "faults/world": counts["world"],
        "faults/sandbox": counts["sandbox"],
        "faults/engine": 0,
        **{f"faults/{name}": observers.get(name, 0) for name in ("logger", "display", "diagnostics")},
        "faults/oom_splits": 0,
        "faults/oom_decoding": 0,
    }


def prefixed(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """``values`` under ``prefix/KEY``."""
    return {f"{prefix}/{key}": value for key, value in values.items()}


@contextmanager
def timed(metrics: dict[str, float], name: str) -> Iterator[None]:
    """Adds the seconds of the context to ``time/NAME_s`` of ``metrics``."""
    start, key = time.perf_counter(), f"time/{name}_s"
    yield
    metrics[key] = metrics.get(key, 0.0) + time.perf_counter() - start
