"""``troupe``: compose a training run with Hydra, build it once, run it."""

from __future__ import annotations

import asyncio
import copy
import difflib
import logging
import os
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import hydra
import lightning as L
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from .experience import Sampling
from .loop import LoopSettings, Team, TrainLoop
from .models.laptop import BaseModelError, load_model, load_tokenizer
from .models.policy import PolicyModule
from .models.pool import LocalPool
from .reports.display import Display
from .reports.run_directory import RunDirectory
from .rollout.voice import Voice
from .routing import Router

log = logging.getLogger(__name__)


class ConfigError(ValueError):
    """A configuration that cannot run; the message names the key."""


def build(cfg: DictConfig) -> TrainLoop:
    """Instantiate everything that ``cfg`` names.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong; the run directory is claimed last.
    """
    config: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)  # type: ignore[assignment]
    settings = _call("loop", LoopSettings, config["loop"])
    world = instantiate(config["env"])
    router = Router(config["team"], world.agents, tuple(config["policies"]))
    parts = {key: instantiate(config["algorithm"][key]) for key in ("sampler", "credit", "objective")}
    parts["credit"].check(parts["sampler"].k)
    L.seed_everything(config["seed"], verbose=False)
    team = build_team(config, router, parts["objective"])
    directory = RunDirectory(Path(config["run_dir"]), OmegaConf.to_yaml(cfg, resolve=True))
    return TrainLoop(
        world=world,
        team=team,
        sampler=parts["sampler"],
        credit=parts["credit"],
        router=router,
        settings=settings,
        directory=directory,
        display=Display(config["name"], settings.iterations),
        seed=config["seed"],
    )


def build_team(config: dict[str, Any], router: Router, objective: Any) -> Team:
    """Pools, engines and voices for every policy."""
    pools, engines, tokenizers, training, evaluation = {}, {}, {}, {}, {}
    for name, policy in config["policies"].items():
        ways = {way: _sampling(f"policies.{name}.sampling.{way}", policy["sampling"][way]) for way in ("train", "eval")}
        if ways["train"].top_p < 1 or ways["train"].top_k > 0:
            log.warning(
                "policies.%s.sampling.train truncates (top_p=%s, top_k=%s): the learner's log-probabilities are those "
                "of the whole distribution, so the importance ratio is biased",
                name,
                ways["train"].top_p,
                ways["train"].top_k,
            )
        model, tokenizer = load_model(policy["base"]), load_tokenizer(policy["base"])
        pools[name] = LocalPool(
            name,
            PolicyModule(
                model,
                objective,
                instantiate(policy["optimizer"]),
                instantiate(policy["scheduler"]),
                ways["train"].temperature,
            ),
            L.Fabric(**config["strategy"]),
            pad_id=tokenizer.pad_token_id,
            seed=config["seed"],
            **config["algorithm"]["update"],
        )
        engine_model = copy.deepcopy(model).eval().requires_grad_(False)
        engines[name] = instantiate(config["engine"])(models={name: engine_model}, tokenizer=tokenizer)
        tokenizers[name] = tokenizer
        context = model.config.max_position_embeddings
        for agent, its_policy in router.team.items():
            if its_policy == name:
                training[agent] = Voice(name, engines[name], tokenizer, context, ways["train"])
                evaluation[agent] = Voice(name, engines[name], tokenizer, context, ways["eval"])
    return Team(pools, engines, tokenizers, training, evaluation)


def _sampling(key: str, values: dict[str, Any]) -> Sampling:
    return _call(key, Sampling, values | {"stop": tuple(values.get("stop", ()))})


def _call(key: str, target: Any, values: dict[str, Any]) -> Any:
    """``target(**values)``, with the configuration's key in the error where the keys do not fit."""
    try:
        return target(**values)
    except TypeError as error:
        raise ConfigError(f"{key}: {error}") from error


def run(cfg: DictConfig) -> dict[str, Any]:
    """Build and train; returns the summary."""
    torch.set_num_threads(cfg.threads or os.cpu_count() or 1)
    loop = build(cfg)
    loop.display.say(f"{cfg.name}, seed {cfg.seed}: {loop.directory.path}")
    with loop.display:
        return asyncio.run(loop.run())


@hydra.main(version_base="1.3", config_path="pkg://troupe.configs", config_name="train")
def _hydra_main(cfg: DictConfig) -> None:
    try:
        run(cfg)
    except KeyboardInterrupt:
        sys.exit(f"interrupted; what was reached is in {cfg.run_dir}")
    except InstantiationException as error:
        sys.exit(f"error: {_instantiation(error)}")
    except (ValueError, BaseModelError, OmegaConfBaseException) as error:
        sys.exit(f"error: {error}")


def _instantiation(error: InstantiationException) -> str:
    """The cause of a failed instantiation, and the key it came from."""
    cause = error.__cause__ or error
    key = re.search(r"full_key: (\S+)", str(error))
    return f"{key.group(1)}: {cause}" if key and isinstance(cause, TypeError) else str(cause)


def experiments() -> list[str]:
    """The names that ``experiment=`` knows."""
    folder = files("troupe.configs") / "experiment"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def check_choices(overrides: list[str]) -> None:
    """Refuse an unknown choice of a group with the list of the known ones and the nearest.

    Raises :class:`ConfigError`.
    """
    root = files("troupe.configs")
    for override in overrides:
        group, _, choice = override.lstrip("+").partition("=")
        folder = root / group
        if not choice or "," in choice or "/" in group or not folder.is_dir():
            continue
        known = sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))
        if known and choice not in known:
            near = difflib.get_close_matches(choice, known, 1, 0.4)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{group}={choice} is unknown{hint} Known: {', '.join(known)}")


def main() -> None:
    """The console script."""
    try:
        check_choices([argument for argument in sys.argv[1:] if not argument.startswith("-")])
    except ConfigError as error:
        sys.exit(f"error: {error}")
    _hydra_main()


if __name__ == "__main__":
    main()
