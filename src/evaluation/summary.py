"""From episodes to metrics: success, avg@k and pass@k with 95 % intervals, turns, rewards per agent, cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from ..envs.judging import METRIC
from ..experience import Failure
from .episodes import EpisodeResult
from .statistics import bootstrap_interval, default_ks, pass_at_k, wilson

ALARMS = ("cut_prompts", "retokenised_prompts", METRIC)
"""Measures that are 0 where all is well, and then left out."""
NOT_OF_THE_WORLD = {"turn", "step", "agent", "session", "saw", "said", "tokens", "team", "local", *ALARMS}
"""Keys of each message; all others are what its world measures."""


def summarise(results: Sequence[EpisodeResult]) -> dict[str, Any]:
    """Flat metrics of one episode per task: success with its 95 % Wilson interval, mean turns, totals of tokens and
    steps, and per agent the mean reward per message, the means of what the world measures, each over the messages of
    which it does, and where there are any the shares of prompts that were cut, and that have an earlier completion in
    other tokens than were sampled, and the errors of judges per message.

    Of tasks with a role also the mean return of the team, of all and by role.

    All of it is over the episodes that were not lost; ``lost_episodes`` counts the others.
    """
    return _success(results) | _averages(results)


def summarise_samples(samples: Sequence[Sequence[EpisodeResult]], ks: Sequence[int] = ()) -> dict[str, Any]:
    """Flat metrics of several samples, each one episode per task, of the same tasks in the same order.

    ``success`` is that of the first sample alone; the averages are over all episodes.  With n > 1 samples also
    ``avg@n``, the mean success of all, and ``pass@k`` (:func:`.statistics.pass_at_k`) for those of ``ks`` up to n, by
    default the powers of two from 2 to n and n itself; each a mean over the tasks of which no sample is lost, with its
    95 % bootstrap interval over them.
    """
    summary = _success(samples[0]) | {"tasks": len(samples[0]), "samples": len(samples)}
    whole = [task for task in zip(*samples, strict=True) if not any(result.lost for result in task)]
    if (n := len(samples)) > 1 and whole:
        wins = [sum(result.success for result in task) for task in whole]
        ks = [k for k in ks if k <= n] if ks else default_ks(n)[1:]
        shares = {f"avg@{n}": [c / n for c in wins]} | {f"pass@{k}": [pass_at_k(n, c, k) for c in wins] for k in ks}
        for name, values in shares.items():
            summary |= {name: fmean(values), f"{name}_ci95": list(bootstrap_interval(values))}
    return summary | _averages([result for sample in samples for result in sample])


def episode_rows(condition: str, samples: Sequence[Sequence[EpisodeResult]]) -> Iterator[dict[str, Any]]:
    """One flat row per episode: condition, sample, result, and per agent the mean reward per message."""
    for sample, results in enumerate(samples):
        for result in results:
            rewards: dict[str, list[float]] = {}
            for message in result.messages:
                rewards.setdefault(message["agent"], []).append(message["team"] + message["local"])
            row = {key: value for key, value in asdict(result).items() if key != "messages"}
            means = {f"{agent}/reward": sum(values) / len(values) for agent, values in rewards.items()}
            yield {"condition": condition, "sample": sample, **row, **means}


def lost_failures(results: Sequence[EpisodeResult]) -> list[Failure]:
    """Why episodes of ``results`` are lost."""
    return [Failure(result.lost, result.failure) for result in results if result.lost]


def _success(results: Sequence[EpisodeResult]) -> dict[str, Any]:
    results = [result for result in results if not result.lost]
    successes = sum(result.success for result in results)
    return {"success": successes / len(results), "success_ci95": list(wilson(successes, len(results)))}


def _averages(results: Sequence[EpisodeResult]) -> dict[str, Any]:
    lost, results = sum(bool(result.lost) for result in results), [result for result in results if not result.lost]
    summary: dict[str, Any] = {"turns": fmean(result.turns for result in results), "episodes": len(results)}
    summary["lost_episodes"] = lost
    for world in sorted({result.world for result in results} - {""}):
        summary[f"success_{world}"] = fmean(result.success for result in results if result.world == world)
    roles = sorted({result.role for result in results} - {""})
    for name, of in [("return", roles), *((f"return_{role}", [role]) for role in roles)] if roles else ():
        summary[name] = fmean(result.team_return for result in results if result.role in of)
    for cost in ("tokens", "prompt_tokens", "env_steps"):
        summary[cost] = sum(getattr(result, cost) for result in results)
    messages = [message for result in results for message in result.messages]
    for agent in sorted({message["agent"] for message in messages}):
        own = [message for message in messages if message["agent"] == agent]
        summary[f"{agent}/reward"] = fmean(message["team"] + message["local"] for message in own)
        for name in dict.fromkeys(name for message in own for name in message if name not in NOT_OF_THE_WORLD):
            summary[f"{agent}/{name}"] = fmean(message[name] for message in own if name in message)
        for alarm in ALARMS:
            if share := fmean(message.get(alarm, 0.0) for message in own):
                summary[f"{agent}/{alarm}"] = share
    return summary
