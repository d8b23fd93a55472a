"""``troupe``: compose a training run with Hydra, build it once, run it."""

from __future__ import annotations

import asyncio
import copy
import difflib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NoReturn

import hydra
import lightning as L
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from lightning.fabric.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from .algorithms.base import CreditError
from .envs.base import TeamEnv
from .experience import Sampling
from .loop import LoopSettings, Team, TrainLoop
from .models.laptop import BaseModelError, load_model, load_tokenizer
from .models.policy import PolicyModule
from .models.pool import LocalPool
from .reports.display import Display
from .reports.run_directory import RunDirectory
from .rollout.voice import PromptError, Voice
from .routing import Router

log = logging.getLogger(__name__)

READ = {
    "": "env algorithm policies team engine strategy scale loop name seed run_dir threads".split(),
    "algorithm.": "sampler credit objective update".split(),
    "policies.*.": "base optimizer scheduler sampling".split(),
    "policies.*.sampling.": "train eval".split(),
}
"""The keys that :func:`build` reads itself; others are arguments of what they configure, which refuses strangers."""


class ConfigError(ValueError):
    """A configuration that cannot run; the message names the key."""


def build(cfg: DictConfig) -> TrainLoop:
    """Instantiate everything that ``cfg`` names.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong; the run directory is claimed last.
    """
    config: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)  # type: ignore[assignment]
    check_keys(config, OmegaConf.to_yaml(cfg, resolve=False))
    if config["threads"] is not None:
        _call("threads", _set_threads, config["threads"])
    settings = _call("loop", LoopSettings, **config["loop"])
    world = _instantiate("env", config["env"])
    router = Router(config["team"], world.agents, tuple(config["policies"]))
    sampler, credit, objective = (
        _instantiate(f"algorithm.{key}", config["algorithm"][key]) for key in ("sampler", "credit", "objective")
    )
    credit.check(sampler.k)
    _call("seed", L.seed_everything, config["seed"], verbose=False)
    team = build_team(config, router, objective)
    check_tasks(world, settings, team)
    return TrainLoop(
        world=world,
        team=team,
        sampler=sampler,
        credit=credit,
        router=router,
        settings=settings,
        directory=RunDirectory(Path(config["run_dir"]), OmegaConf.to_yaml(cfg, resolve=True)),
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
            objective,
            _partial(f"{key}.optimizer", policy["optimizer"]),
            _partial(f"{key}.scheduler", policy["scheduler"]),
            ways["train"].temperature,
        )
        fabric = _fabric(config["strategy"])
        given = {"pad_id": tokenizer.pad_token_id, "seed": config["seed"]}
        pools[name] = _call(
            "algorithm.update", LocalPool, name, module, fabric, **given, **config["algorithm"]["update"]
        )
        engine_model = copy.deepcopy(model).eval().requires_grad_(False)
        engines[name] = _partial("engine", config["engine"])(models={name: engine_model}, tokenizer=tokenizer)
        tokenizers[name] = tokenizer
        for agent, its_policy in router.team.items():
            if its_policy == name:
                training[agent] = Voice(name, engines[name], tokenizer, context, ways["train"])
                evaluation[agent] = Voice(name, engines[name], tokenizer, context, ways["eval"])
    return Team(pools, engines, tokenizers, training, evaluation)


def _fabric(strategy: dict[str, Any]) -> L.Fabric:
    try:
        return _call("strategy", L.Fabric, **strategy)
    except (RuntimeError, ImportError) as error:  # an accelerator that the machine does not have
        raise ConfigError(f"strategy: {error}") from error


def _sampling(key: str, values: dict[str, Any]) -> Sampling:
    return _call(key, Sampling, **values | {"stop": tuple(values.get("stop", ()))})


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


def check_tasks(world: TeamEnv, settings: LoopSettings, team: Team) -> None:
    """Draw the tasks of each split, and ask the agents that open an episode, before anything is written.

    Raises :class:`ConfigError` where a split holds too few tasks, ``PromptError`` where a policy cannot read a prompt.
    """
    counts = {"boards": "train", "validation_tasks": "validation", "test_tasks": "test"}
    for key, split in counts.items():
        task = _call(f"loop.{key}", world.tasks, split, getattr(settings, key), 0)[0]
        env = world.fork()
        env.reset(task)
        for agent in env.next_agents():
            for voice in (team.training[agent], team.evaluation[agent]):
                voice.encode(agent, task.task_id, env.observe(agent))


# ---- configuration -> objects, with the key in every error ----------------------------------------------------------


def check_keys(config: dict[str, Any], unresolved: str) -> None:
    """Refuse keys that nothing reads and keys that are not there.  ``unresolved`` is the yaml with interpolations.

    Raises :class:`ConfigError`.
    """
    for prefix, section, known in _sections(config):
        if not isinstance(section, dict):
            raise ConfigError(f"{prefix.rstrip('.')} must hold keys, got {section!r}")
        for key in section:
            if known and key not in known:
                raise ConfigError(f"{prefix}{key} is a key that nothing reads{_near(key, known)}")
        for key in known:
            if key not in section:
                raise ConfigError(f"{prefix}{key} is missing")
    texts = unresolved + "".join(file.read_text() for file in _yamls(files("troupe.configs")))
    for key in config["scale"]:
        if f"${{scale.{key}}}" not in texts:
            raise ConfigError(f"scale.{key} is a key that nothing reads")


def _sections(config: dict[str, Any]) -> Iterator[tuple[str, Any, list[str]]]:
    """(Prefix, section, known keys or none); each is to be checked before the next is asked for."""
    yield "", config, READ[""]
    for name in ("env", "algorithm", "policies", "team", "engine", "strategy", "scale", "loop"):
        yield f"{name}.", config[name], READ.get(f"{name}.", [])
    for name, part in config["algorithm"].items():
        yield f"algorithm.{name}.", part, []
    for name, policy in config["policies"].items():
        yield f"policies.{name}.", policy, READ["policies.*."]
        for part in ("optimizer", "scheduler"):
            yield f"policies.{name}.{part}.", policy[part], []
        yield f"policies.{name}.sampling.", policy["sampling"], READ["policies.*.sampling."]
        for way, values in policy["sampling"].items():
            yield f"policies.{name}.sampling.{way}.", values, []


def _instantiate(key: str, node: dict[str, Any]) -> Any:
    """Hydra's ``instantiate``.  Raises :class:`ConfigError` naming ``key``."""
    if "_target_" not in node:
        raise ConfigError(f"{key}._target_ is missing: the name of a class")
    try:
        return instantiate(node)
    except InstantiationException as error:
        raise ConfigError(_explain(key, error.__cause__ or error)) from error


def _partial(key: str, node: dict[str, Any]) -> Callable[..., Any]:
    """``node``, to be called with what configuration does not hold; errors name ``key``."""
    return partial(_call, key, _instantiate(key, node | {"_partial_": True}))


def _call(key: str, target: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    """``target(*arguments, **keywords)``.  Raises :class:`ConfigError` naming ``key`` where it refuses them."""
    try:
        return target(*arguments, **keywords)
    except ConfigError:
        raise
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise ConfigError(_explain(key, error)) from error


def _explain(key: str, error: BaseException) -> str:
    text = str(error)
    if stranger := re.search(r"unexpected keyword argument '(\w+)'", text):
        return f"{key}.{stranger[1]} is a key that nothing reads"
    if absent := re.search(r"missing \d+ required .* argument.*: '(\w+)'", text):
        return f"{key}.{absent[1]} is missing"
    return text if re.match(rf"{re.escape(key)}\b", text) else f"{key}: {text}"


def _set_threads(count: int) -> None:
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"threads must be a whole number of at least 1, or null, got {count!r}")
    torch.set_num_threads(count)


# ---- the command ----------------------------------------------------------------------------------------------------


def run(cfg: DictConfig) -> dict[str, Any]:
    """Build and train; returns the summary."""
    return train(build(cfg))


def train(loop: TrainLoop) -> dict[str, Any]:
    """Train and show it; returns the summary."""
    loop.display.say(f"{loop.display.title}, seed {loop.seed}: {loop.directory.path}")
    with loop.display:
        return asyncio.run(loop.run())


@hydra.main(version_base="1.3", config_path="pkg://troupe.configs", config_name="train")
def _hydra_main(cfg: DictConfig) -> None:
    try:
        loop = build(cfg)
    except (ValueError, BaseModelError, OmegaConfBaseException) as error:
        _fail(error)
    try:
        train(loop)
    except KeyboardInterrupt:
        sys.exit(f"interrupted; what was reached is in {loop.directory.path}")
    except (PromptError, CreditError, FloatingPointError) as error:
        _fail(error, f"; what was reached is in {loop.directory.path}")


def _fail(error: Exception, more: str = "") -> NoReturn:
    """End with the message alone, or with the whole traceback where HYDRA_FULL_ERROR=1 asks for it."""
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        raise error
    sys.exit(f"error: {error}{more}")


def choices(group: str) -> list[str]:
    """The names that ``group=`` knows: the files of a folder of ``configs``; none where there is no such folder."""
    folder = files("troupe.configs") / group
    if not folder.is_dir():
        return []
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def check_choices(arguments: Sequence[str]) -> None:
    """Refuse an unknown choice of a group with the list of the known ones and the nearest.

    A user's own folders (``--config-dir``, ``hydra.searchpath``) may hold others: then Hydra alone judges.  Raises
    :class:`ConfigError`.
    """
    if any(re.match(r"--config-dir|-cd|\+?hydra\.searchpath", argument) for argument in arguments):
        return
    for argument in arguments:
        group, _, choice = argument.lstrip("+").partition("=")
        known = choices(group) if re.fullmatch(r"\w+", group) else []
        if known and choice not in ("", "null", *known) and "," not in choice:
            raise ConfigError(f"{group}={choice} is unknown{_near(choice, known)}")


def _near(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1, 0.4)
    return (f"; did you mean {near[0]}?" if near else ".") + f" Known: {', '.join(known)}"


def _yamls(folder: Traversable) -> Iterator[Traversable]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _yamls(entry)
        elif entry.name.endswith(".yaml"):
            yield entry


def main() -> None:
    """The console script."""
    try:
        check_choices(sys.argv[1:])
    except ConfigError as error:
        _fail(error)
    _hydra_main()


if __name__ == "__main__":
    main()
