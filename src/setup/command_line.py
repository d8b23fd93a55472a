"""The words of a command, checked before Hydra composes them, and the message that a refused command ends with."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NoReturn

from hydra import compose
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException, MissingConfigException
from omegaconf import OmegaConf

from ..errors import ConfigError, nearest
from ..runs.fingerprint import flat
from .composition import configurations
from .unknown import KEYS, unknown_choice, unknown_path

ONE = ("env", "algorithm", "regime", "engine", "strategy", "scale")
"""Groups of which a run has one file."""


def check_command_line(config: str, arguments: Sequence[str]) -> None:
    """Refuse words that ``config`` (``train``, ``evaluate``, ...) cannot be composed with, the user's folders included.

    With another primary config Hydra alone judges.  Raises :class:`ConfigError` naming the word.
    """
    options = get_args_parser().parse_args(list(arguments))
    if options.config_name or options.config_path:
        return
    with configurations(options.config_dir):
        check_words(config, options.overrides)


def check_words(config: str, words: Sequence[str]) -> None:
    """As :func:`check_command_line`, for the overrides alone and with the Hydra that is initialised."""
    overrides = parsed(words)
    groups = check_choices(overrides)
    if any(override.is_sweep_override() for override in groups):
        return
    known = _keys(config, [str(override.input_line) for override in [*_search_path(overrides), *groups]])
    for override in overrides:
        key = override.key_or_group
        strict = override.type is OverrideType.CHANGE and not override.is_hydra_override()
        if strict and override not in groups and key not in known:
            raise unknown_path(key, known)


def check_choices(overrides: Sequence[Override]) -> list[Override]:
    """Refuse choices that no folder holds, and keys that were renamed; returns the overrides that choose.

    Raises :class:`ConfigError`.
    """
    loader = GlobalHydra.instance().config_loader()
    search_path = [str(override.input_line) for override in _search_path(overrides)]
    groups = []
    for override in overrides:
        group = "" if override.is_hydra_override() else override.key_or_group
        known = loader.get_group_options(group, overrides=search_path) if group else []
        if known:
            _check_choice(override, known)
            groups.append(override)
        elif group in KEYS:
            raise unknown_path(group, ())
    return groups


def parsed(words: Sequence[str]) -> list[Override]:
    """By Hydra's grammar.  Raises :class:`ConfigError` for what is no override."""
    parser = OverridesParser.create()
    overrides = []
    for word in words:
        try:
            overrides.append(parser.parse_override(word))
        except HydraException as error:
            raise ConfigError(f"{word} is no override: {' '.join(str(error).split())}") from error
    return overrides


def fail(error: Exception, more: str = "") -> NoReturn:
    """End a command with the message alone, or with the whole traceback where HYDRA_FULL_ERROR=1 asks for it."""
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        raise error
    sys.exit(f"error: {error}{more}")


def _search_path(overrides: Sequence[Override]) -> list[Override]:
    return [override for override in overrides if override.key_or_group == "hydra.searchpath"]


def _check_choice(override: Override, known: Sequence[str]) -> None:
    """Several choices to sweep over are Hydra's to judge."""
    if override.is_sweep_override():
        return
    group, choice = override.key_or_group, override.value()
    if group in ONE and (override.type is not OverrideType.CHANGE or not isinstance(choice, str)):
        raise ConfigError(
            f"{override.input_line}: a run has one {group}. Give {group}=NAME, with NAME one of: {', '.join(known)}"
        )
    for name in choice if isinstance(choice, list) else [choice]:
        if name and name not in known:
            raise unknown_choice(group, str(name), known)


def _keys(config: str, groups: list[str]) -> set[str]:
    """Every dotted key of ``config`` composed with the choices ``groups``."""
    try:
        composed: Any = OmegaConf.to_container(compose(config, overrides=groups))
    except MissingConfigException as error:
        file = error.missing_cfg_file or config
        near = nearest(file.rpartition("/")[2], error.options) if error.options else ""
        raise ConfigError(f"{file}.yaml is in no folder of configurations{near}") from error
    except HydraException as error:
        raise ConfigError(" ".join(f"{error} {error.__cause__ or ''}".split())) from error
    return {key for leaf, _ in flat(composed) for key in accumulate(leaf.split("."), "{}.{}".format)}
