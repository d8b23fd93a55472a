"""From a resolved configuration to the objects that train: the one place where they are put together."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from rich.console import Console
from safetensors import SafetensorError
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .algorithms.base import CreditRule
from .configuration import ConfigError, binding, call, check_equal, check_keys, instantiated, partially
from .envs.base import TeamEnv
from .experience import Sampling
from .loop import LoopSettings, Team, TrainLoop
from .models.checkpoint import restore
from .models.checkpoint_folder import CheckpointFolder
from .models.laptop import load_model, load_tokenizer
from .models.policy import PolicyModule
from .models.pool import LocalPool
from .models.ranks import Ranks
from .models.strategies import StrategySettings, check_trainable, launch
from .reports.display import Display
from .reports.loggers import Loggers
from .reports.progress import Progress
from .reports.run_directory import ReadOnlyRunDirectory, RunDirectory
from .rollout.base import Engine, Sampler
from .rollout.voice import Voice
from .routing import Router

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parts:
    """What a run is made of, before any model is loaded."""

    settings: LoopSettings
    world: TeamEnv
    router: Router
    sampler: Sampler
    credit: CreditRule
    objective: Any
    strategy: StrategySettings


def parts_of(config: dict[str, Any], unresolved: str | None) -> Parts:
    """The parts that ``config`` names; ``unresolved`` is its yaml with interpolations.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong.
    """
    check_keys(config, unresolved)
    settings = call("loop", LoopSettings, **{k: v for k, v in config["loop"].items() if k != "checkpoint"})
    world = instantiated("env", config["env"])
    router = Router(config["team"], world.agents, tuple(config["policies"]))
    sampler, credit, objective = (
        instantiated(f"algorithm.{key}", config["algorithm"][key]) for key in ("sampler", "credit", "objective")
    )
    sampler.check(world)
    credit.check(sampler.k, sampler.topology)
    rows = config["engine"].get("max_batch_rows")
    if rows is not None and sampler.k > rows:
        raise ConfigError(f"algorithm.sampler.k={sampler.k} is more than engine.max_batch_rows={rows} decode together")
    return Parts(settings, world, router, sampler, credit, objective, _strategy(config["strategy"]))


def assemble(config: dict[str, Any], resolved: str, unresolved: str | None, checkpoint: str | None = None) -> TrainLoop:
    """Everything that ``config`` names; ``resolved`` and ``unresolved`` are its yaml without and with interpolation.

    With ``checkpoint``, one of those in the run directory, the run there is continued, and ``unresolved`` is None.
    Raises ``ValueError`` (or a subclass) naming the key that is wrong, ``CheckpointError`` naming the file; the run
    directory is claimed, or changed, last.
    """
    parts = parts_of(config, unresolved)
    checkpoints = _checkpoints(config)
    state = checkpoints.state(checkpoint) if checkpoint else None
    fabric = call("strategy", parts.strategy.fabric)
    call("strategy", check_trainable, fabric)
    ranks = launch(fabric)
    if config["threads"] is not None:
        call("threads", set_threads, config["threads"])
    path = Path(ranks.from_first(config["run_dir"]))
    checkpoints.path = path / "checkpoints"
    call("seed", L.seed_everything, config["seed"], verbose=False)
    team = ranks.agreed(lambda: build_team(config, parts, ranks))
    ranks.agreed(lambda: check_tasks(parts.world, parts.settings, team, parts.sampler.resample))
    loggers = ranks.agreed(lambda: _loggers(config))
    loop = TrainLoop(
        world=parts.world,
        team=team,
        sampler=parts.sampler,
        credit=parts.credit,
        router=parts.router,
        settings=parts.settings,
        directory=ranks.agreed(lambda: _directory(path, ranks, None if state else resolved)),
        checkpoints=checkpoints,
        loggers=loggers,
        display=Display(config["name"], parts.settings.iterations, None if ranks.first else Console(quiet=True)),
        seed=config["seed"],
        ranks=ranks,
    )
    if state:
        ranks.agreed(lambda: _restore(loop, state))
        ranks.agreed(lambda: _rewind(loop, state, resolved))
    ranks.agreed(lambda: call("logger", loggers.config, path, config))
    return loop


def _directory(path: Path, ranks: Ranks, new: str | None) -> RunDirectory:
    """The run directory, claimed with the configuration ``new``, or one that was claimed before (None)."""
    if not ranks.first:
        return ReadOnlyRunDirectory(path)
    return RunDirectory.reopen(path) if new is None else RunDirectory(path, new)


def _loggers(config: dict[str, Any]) -> Loggers:
    return Loggers({name: instantiated(f"logger.{name}", node) for name, node in config["logger"].items()})


def _checkpoints(config: dict[str, Any]) -> CheckpointFolder:
    path = Path(config["run_dir"]) / "checkpoints"
    return call("loop.checkpoint", CheckpointFolder, path, binding(config), **config["loop"]["checkpoint"])


def _restore(loop: TrainLoop, state: dict[str, Any]) -> None:
    """Bring ``loop`` to where ``state`` was written; changes no file."""
    path, checkpoints, progress = loop.directory.path, loop.checkpoints, Progress.of(state)
    folder = checkpoints.at(progress.iteration)
    check_equal(state["config"], dict(checkpoints.config), f"{path / 'config.yaml'} was changed since {folder}")
    loop.progress = progress
    if loop.over() and loop.directory.finished():
        raise ConfigError(
            f"resume={path}: the run has finished, after {progress.iteration} iterations; to go on, give a larger "
            "loop.iterations (it is the total), or loop.completions"
        )
    restore(folder, loop.team.pools)
    loop.credit.load_state_dict(state["credit"])
    loop.display.goes_on(progress.iteration)


def _rewind(loop: TrainLoop, state: dict[str, Any], resolved: str) -> None:
    """Bring the files of ``loop``'s run to where ``state`` was written."""
    if not loop.ranks.first:
        return
    progress = loop.progress
    loop.directory.rewind(progress.iteration - bool(progress.row), resolved, progress.summary)
    loop.checkpoints.point(state)
    loop.checkpoints.forget_after(progress.iteration)


def build_team(config: dict[str, Any], parts: Parts, ranks: Ranks) -> Team:
    """Pools, engines and voices for every policy."""
    pools, engines, tokenizers, training, evaluation = {}, {}, {}, {}, {}
    for name, policy in config["policies"].items():
        key = f"policies.{name}"
        ways = {way: read_sampling(f"{key}.sampling.{way}", policy["sampling"][way]) for way in ("train", "eval")}
        _check_training(f"{key}.sampling.train", ways["train"])
        model, tokenizer = load_base(f"{key}.base", policy["base"])
        context = model.config.max_position_embeddings
        for way, sampling in ways.items():
            check_room(f"{key}.sampling.{way}", sampling, policy["base"], context)
        module = PolicyModule(
            model,
            parts.objective.sized(ways["train"].max_tokens),
            partially(f"{key}.optimizer", policy["optimizer"]),
            partially(f"{key}.scheduler", policy["scheduler"]),
            ways["train"].temperature,
        )
        if parts.strategy.gradient_checkpointing:
            model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
        fabric = parts.strategy.fabric()
        launch(fabric)
        given = {"pad_id": tokenizer.pad_token_id, "seed": config["seed"], "ranks": ranks}
        pools[name] = call(
            "algorithm.update", LocalPool, name, module, fabric, **given, **config["algorithm"]["update"]
        )
        engines[name] = build_engine(config["engine"], name, copy.deepcopy(model), tokenizer)
        tokenizers[name] = tokenizer
        for agent, its_policy in parts.router.team.items():
            if its_policy == name:
                training[agent] = Voice(name, engines[name], tokenizer, context, ways["train"])
                evaluation[agent] = Voice(name, engines[name], tokenizer, context, ways["eval"])
    return Team(pools, engines, tokenizers, training, evaluation)


def _strategy(node: dict[str, Any]) -> StrategySettings:
    named = node.get("strategy")
    sharded = {"strategy": instantiated("strategy.strategy", named)} if isinstance(named, dict) else {}
    return call("strategy", StrategySettings, **node | sharded)


def build_engine(
    node: dict[str, Any], policy: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> Engine:
    """The engine that ``node`` names, for one policy.  It owns ``model`` from here on."""
    models = {policy: model.eval().requires_grad_(False)}
    engine: Engine = partially("engine", node)(models=models, tokenizer=tokenizer)
    return engine


def read_sampling(key: str, values: dict[str, Any]) -> Sampling:
    """Raises :class:`ConfigError` naming ``key``."""
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


def check_room(key: str, sampling: Sampling, base: str, context: int) -> None:
    """Raise :class:`ConfigError` where answers may fill the whole ``context``, in tokens."""
    if sampling.max_tokens >= context:
        raise ConfigError(
            f"{key}.max_tokens={sampling.max_tokens} leaves no room for a prompt: the context of {base} is "
            f"{context} tokens"
        )


def load_base(key: str, base: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A causal LM and its tokenizer.  Raises :class:`ConfigError` naming ``key`` where they cannot be loaded."""
    try:
        return load_model(base), load_tokenizer(base)
    except (OSError, ValueError, SafetensorError) as error:  # missing, or damaged in some file
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


def set_threads(count: int) -> None:
    """How many threads torch uses.  Raises ``ValueError``."""
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"threads must be a whole number of at least 1, or null, got {count!r}")
    torch.set_num_threads(count)
