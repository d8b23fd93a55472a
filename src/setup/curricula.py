"""From the options of ``troupe warm-start`` to a curriculum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..errors import ConfigError
from ..models.open_tokenizer import SMALLEST
from ..warm_start.curriculum import CURRICULA, Curriculum, curriculum_of
from ..warm_start.recipe import WORLD_RECIPE
from .instantiation import call
from .warm_start import ChosenWorld, WarmStartOptions
from .worlds import build_world


def curriculum_for(options: WarmStartOptions, chosen: ChosenWorld | None) -> tuple[Curriculum, dict[str, Any]]:
    """The curriculum of the ``chosen`` world, else of the shipped base model; and what identifies its demonstrations.

    Raises :class:`ConfigError` for a world without demonstrations, or with fewer validation tasks than are asked for.
    """
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
            world.tasks("validation", options.validation_tasks, 0)
        except ValueError as error:
            raise ConfigError(f"validation_tasks={options.validation_tasks}: {error}") from error
    return curriculum, {"world": chosen.env, "vocabulary": options.vocabulary}
