"""From a resolved configuration to the objects that train: the one place where they are put together."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import lightning as L
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .configuration import ConfigError, call, check_keys, instantiated, partially
from .envs.base import TeamEnv
from .experience import Sampling
from .loop import LoopSettings, Team, TrainLoop
from .models.laptop import load_model, load_tokenizer
from .models.policy import PolicyModule
from .models.pool import LocalPool
from .reports.display import Display
from .reports.run_directory import RunDirectory
from .rollout.voice import Voice
from .routing import Router

log = logging.getLogger(__name__)


def assemble(config: dict[str, Any], resolved: str, unresolved: str) -> TrainLoop:
    """Everything that ``config`` names; ``resolved`` and ``unresolved`` are its yaml with and without interpolation.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong; the run directory is claimed last.
    """
    check_keys(config, unresolved)
    if config["threads"] is not None:
        call("threads", _set_threads, config["threads"])
    settings = call("loop", LoopSettings, **config["loop"])
    world = instantiated("env", config["env"])
    router = Router(config["team"], world.agents, tuple(config["policies"]))
    sampler, credit, objective = (
        instantiated(f"algorithm.{key}", config["algorithm"][key]) for key in ("sampler", "credit", "objective")
    )
    sampler.check(world)
    credit.check(sampler.k, sampler.topology)
    call("seed", L.seed_everything, config["seed"], verbose=False)
    team = build_team(config, router, objective)
    check_tasks(world, settings, team, sampler.resample)
    return TrainLoop(
        world=world,
        team=team,
        sampler=sampler,
        credit=credit,
        router=router,
        settings=settings,
        directory=RunDirectory(Path(config["run_dir"]), resolved),
        display=Display(config["name"], settings.iterations),
        seed=config["seed"],
    )


def build_team(config: dict[str, Any], router: Router, objective: Any) -> Team:
    """Pools, engines and voices for every policy."""
    pools, engines, tokenizers, training, evaluation = {}, {}, {}, {}, {}
    for name, policy in config["policies"].items():
        key = f"policies.{name}"
        ways = {way: _sampling(f"{key}.sampling.{way}", policy["sampling"][way]) for way in ("train", "eval")}
        _check_training(f"{key}.sampling.train", ways["train"])
        model, tokenizer = _load(f"{key}.base", policy["base"])
        context = model.config.max_position_embeddings
        for way, sampling in ways.items():
            if sampling.max_tokens >= context:
                raise ConfigError(
                    f"{key}.sampling.{way}.max_tokens={sampling.max_tokens} leaves no room for a prompt: the context "
                    f"of {policy['base']} is {context} tokens"
                )
        module = PolicyModule(
            model,
            objective.sized(ways["train"].max_tokens),
            partially(f"{key}.optimizer", policy["optimizer"]),
            partially(f"{key}.scheduler", policy["scheduler"]),
            ways["train"].temperature,
        )
        fabric = _fabric(config["strategy"])
        given = {"pad_id": tokenizer.pad_token_id, "seed": config["seed"]}
        pools[name] = call(
            "algorithm.update", LocalPool, name, module, fabric, **given, **config["algorithm"]["update"]
        )
        engine_model = copy.deepcopy(model).eval().requires_grad_(False)
        engines[name] = partially("engine", config["engine"])(models={name: engine_model}, tokenizer=tokenizer)
        tokenizers[name] = tokenizer
        for agent, its_policy in router.team.items():
            if its_policy == name:
                training[agent] = Voice(name, engines[name], tokenizer, context, ways["train"])
                evaluation[agent] = Voice(name, engines[name], tokenizer, context, ways["eval"])
    return Team(pools, engines, tokenizers, training, evaluation)


def _fabric(strategy: dict[str, Any]) -> L.Fabric:
    try:
        return call("strategy", L.Fabric, **strategy)
    except (RuntimeError, ImportError) as error:  # an accelerator that the machine does not have
        raise ConfigError(f"strategy: {error}") from error


def _sampling(key: str, values: dict[str, Any]) -> Sampling:
    return call(key, Sampling, **values | {"stop": tuple(values.get("stop", ()))})


def _check_training(key: str, sampling: Sampling) -> None:
    if sampling.temperature == 0:
        raise ConfigError(
            f"{key}.temperature=0 is greedy: K equal candidates teach nothing; give a temperature above 0"
        )
    if sampling.top_p < 1 or sampling.top_k > 0:
        log.warning(
            "%s truncates (top_p=%s, top_k=%s): the learner's log-probabilities are those of the whole distribution, "
            "so the importance ratio is biased",
            key,
            sampling.top_p,
            sampling.top_k,
        )


def _load(key: str, base: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    try:
        return load_model(base), load_tokenizer(base)
    except OSError as error:
        raise ConfigError(f"{key}={base} cannot be loaded: {error}") from error


def check_tasks(world: TeamEnv, settings: LoopSettings, team: Team, resample: int) -> None:
    """Draw the tasks of each split, and ask the agents that open an episode, before anything is written.

    An iteration may need ``resample`` times more training tasks.  Raises :class:`ConfigError` where a split holds too
    few tasks, ``PromptError`` where a policy cannot read a prompt.
    """
    counts = {"boards": "train", "validation_tasks": "validation", "test_tasks": "test"}
    for key, split in counts.items():
        count = getattr(settings, key) * (1 + resample if key == "boards" else 1)
        task = call(f"loop.{key}", world.tasks, split, count, 0)[0]
        env = world.fork()
        env.reset(task)
        for agent in env.next_agents():
            for voice in (team.training[agent], team.evaluation[agent]):
                voice.encode(agent, task.task_id, env.observe(agent))


def _set_threads(count: int) -> None:
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"threads must be a whole number of at least 1, or null, got {count!r}")
    torch.set_num_threads(count)
