"""What the configurations of older runs have otherwise."""

from __future__ import annotations

from typing import Any

GONE = ("alarm_kl_nats", "alarm_ess_ratio")
"""Keys of ``algorithm.update`` that no figure of a run depended on, and that are no more."""


def with_current_config(config: dict[str, Any]) -> dict[str, Any]:
    """``config`` under the keys of today.

    ``algorithm.reward.team`` was ``algorithm.sampler.lookahead``: without it a message was judged by its own outcome,
    with it by one answer of the agents that act next.  ``strategy.float32_matmul``, new, has no effect on a CPU, where
    the runs of before were made.  :data:`GONE` are left out, and TensorBoard's number of episodes in tables.
    """
    logger = config.get("logger")
    if isinstance(logger, dict) and isinstance(logger.get("tensorboard"), dict):
        rest = {key: value for key, value in logger["tensorboard"].items() if key != "episodes"}
        config = {**config, "logger": {**logger, "tensorboard": rest}}
    algorithm, strategy = config.get("algorithm"), config.get("strategy")
    if isinstance(strategy, dict):
        config = {**config, "strategy": {"float32_matmul": "high", **strategy}}
    if not isinstance(algorithm, dict):
        return config
    sampler, update = algorithm.get("sampler"), algorithm.get("update")
    if isinstance(sampler, dict) and "lookahead" in sampler:
        rest = {key: value for key, value in sampler.items() if key != "lookahead"}
        algorithm = {**algorithm, "sampler": rest, "reward": {"team": "global" if sampler["lookahead"] else "own"}}
    if isinstance(update, dict):
        algorithm = {**algorithm, "update": {key: value for key, value in update.items() if key not in GONE}}
    return {**config, "algorithm": algorithm}
