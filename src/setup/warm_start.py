"""The command line of ``troupe warm-start``: its own keys, the recipe's, and overrides that choose a world."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import OmegaConf

from ..errors import ConfigError, Natural, check_fields, nearest
from ..models.bases.base_models import SHIPPED
from ..warm_start.recipe import WORLD_RECIPE, Recipe
from .command_line import check_overrides, parsed
from .composition import configurations
from .instantiation import build_world, call, check_types, construct_plainly

if TYPE_CHECKING:
    from ..warm_start.curriculum import Curriculum

WORLD = ("env", "scale", "experiment", "hydra.searchpath")
"""Keys of ``troupe train`` that choose a world; those below ``env`` are its settings."""

RECIPE = [one.name for one in fields(Recipe)]
"""The recipe's keys."""


@dataclass(frozen=True)
class WarmStartOptions:
    """The command's own keys, those of the ``recipe`` that are given, and the overrides that choose the ``world``.

    Raises :class:`ConfigError` naming the key that is wrong.
    """

    base: str | None = None
    out: str | None = None
    work: str | None = None
    again: bool = False
    compile: bool = False
    steps: Natural | None = None
    until: Natural | None = None
    vocabulary: Natural = 512
    validation_tasks: Natural = 100
    threads: Natural = 1
    config_dir: str | None = None
    recipe: Mapping[str, Any] = field(default_factory=dict)
    world: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, error=ConfigError)
        check_types("", Recipe, self.recipe)
        for key, value in self.recipe.items():
            if value < 0:
                raise ConfigError(f"{key} must be at least 0, got {value}")

    @classmethod
    def read(cls, arguments: Sequence[str]) -> WarmStartOptions:
        """The options of a command line.  Raises :class:`ConfigError` naming the word that is wrong."""
        parser = ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--config-dir", "-cd")
        flags, words = parser.parse_known_args(arguments)
        own = [one.name for one in fields(cls) if one.name not in ("config_dir", "recipe", "world")]
        given, world = [], []
        for word in words:
            key, equals, _ = word.partition("=")
            name = key.lstrip("+~")
            if name in WORLD or name.startswith("env."):
                world.append(word)
            elif equals and key in (*own, *RECIPE):
                given.append(word)
            else:
                raise ConfigError(f"{word} is no setting of warm-start{nearest(name, [*own, *RECIPE, *WORLD])}")
        values: dict[str, Any] = {each.key_or_group: each.value() for each in parsed(given)}
        base = values.get("base")
        if (base is None) == (not world):
            raise ConfigError(f"Which world?  env=NAME or experiment=NAME; or base=NAME: {', '.join(SHIPPED)}")
        if base is not None and base not in SHIPPED:
            raise ConfigError(f"base={base} is unknown{nearest(base, SHIPPED)}")
        recipe = {key: values.pop(key) for key in RECIPE if key in values}
        return construct_plainly(
            "", cls, values | {"config_dir": flags.config_dir, "recipe": recipe, "world": tuple(world)}
        )

    def with_recipe(self, recipe: Recipe) -> Recipe:
        """``recipe`` with the keys that are given.  Raises :class:`ConfigError`."""
        try:
            changed = replace(recipe, **self.recipe)
            return changed if self.steps is None else changed.lasting(self.steps)
        except ValueError as error:
            raise ConfigError(str(error)) from error


@dataclass(frozen=True)
class ChosenWorld:
    """A world that the overrides choose: the name of its yaml, its section ``env``, and of each of its policies the
    ``bases`` and the ``max_tokens`` of a message in training.
    """

    name: str
    env: dict[str, Any]
    bases: Mapping[str, str]
    max_tokens: Mapping[str, int]


def chosen_world(options: WarmStartOptions) -> ChosenWorld:
    """Compose what ``troupe train`` would train with.  Raises :class:`ConfigError` naming the override."""
    words = list(options.world)
    with configurations(options.config_dir):
        check_overrides("train", words)
        try:
            cfg = compose("train", overrides=words, return_hydra_config=True)
            HydraConfig.instance().set_config(cfg)
            name = cfg.hydra.runtime.choices["env"]
            env: Any = OmegaConf.to_container(cfg.env, resolve=True)
            policies = {str(policy): cfg.policies[policy] for policy in cfg.policies}
            bases = {policy: keys.base for policy, keys in policies.items()}
            max_tokens = {policy: keys.sampling.train.max_tokens for policy, keys in policies.items()}
        except HydraException as error:
            raise ConfigError(" ".join(str(error).split())) from error
    return ChosenWorld(str(name), env, bases, max_tokens)


def curriculum_for(options: WarmStartOptions, chosen: ChosenWorld | None) -> tuple[Curriculum, dict[str, Any]]:
    """The curriculum of the ``chosen`` world, else of the shipped base model; and what identifies its demonstrations.

    Raises :class:`ConfigError` for a world without demonstrations, or with fewer validation tasks than are asked for.
    """
    from ..envs.returned import TaskSource  # these import torch; words are checked before
    from ..models.bases.open_tokenizer import SMALLEST
    from ..warm_start.curriculum import CURRICULA, curriculum_of

    if chosen is None:
        assert options.base is not None
        curriculum = CURRICULA[options.base]
        return replace(curriculum, recipe=options.with_recipe(curriculum.recipe)), {}
    if options.vocabulary < SMALLEST:
        raise ConfigError(
            f"vocabulary must be at least {SMALLEST}, all bytes and special tokens, got {options.vocabulary}"
        )
    world = build_world("env", chosen.env)
    curriculum = call("env", curriculum_of, world, options.with_recipe(WORLD_RECIPE), options.vocabulary)
    if options.validation_tasks:
        try:
            TaskSource(world).tasks("validation", options.validation_tasks, 0)
        except ValueError as error:
            raise ConfigError(f"validation_tasks={options.validation_tasks}: {error}") from error
    return curriculum, {"world": chosen.env, "vocabulary": options.vocabulary}
