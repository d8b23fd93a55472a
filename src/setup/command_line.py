"""Check the overrides of a command line before Hydra composes them; end a refused command with one line."""

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
"""Groups of which a run has exactly one choice."""


def check_command_line(config: str, arguments: Sequence[str]) -> None:
    """Check the overrides in ``arguments`` for ``config`` (``train``, ``eval``, ``serve``), with the user's folders.

    With another primary config only Hydra checks them.  Raises :class:`ConfigError` naming the override.
    """
    options = get_args_parser().parse_args(list(arguments))
    if options.config_name or options.config_path:
        return
    with configurations(options.config_dir):
        check_overrides(config, options.overrides)


def check_overrides(config: str, texts: Sequence[str]) -> None:
    """:func:`check_command_line` for overrides alone, in the Hydra that is initialised."""
    overrides = parsed(texts)
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
    """Check the choices of groups, and renamed keys; returns the overrides that choose.

    Raises :class:`ConfigError` naming the choice or the key.
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


def parsed(texts: Sequence[str]) -> list[Override]:
    """The overrides, by Hydra's grammar.  Raises :class:`ConfigError` naming a text that is not one."""
    parser = OverridesParser.create()
    overrides = []
    for text in texts:
        try:
            overrides.append(parser.parse_override(text))
        except HydraException as error:
            raise ConfigError(f"{text} is no override: {' '.join(str(error).split())}") from error
    return overrides


def fail(error: Exception, more: str = "") -> NoReturn:
    """End a command with the message alone, or with the whole traceback where HYDRA_FULL_ERROR=1 asks for it."""
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        raise error
    sys.exit(f"error: {error}{more}")


def _search_path(overrides: Sequence[Override]) -> list[Override]:
    return [override for override in overrides if override.key_or_group == "hydra.searchpath"]


def _check_choice(override: Override, known: Sequence[str]) -> None:
    """Sweeps over several choices are left to Hydra."""
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
    """The dotted keys of ``config``, composed with the choices ``groups``."""
    try:
        composed: Any = OmegaConf.to_container(compose(config, overrides=groups))
    except MissingConfigException as error:
        file = error.missing_cfg_file or config
        near = nearest(file.rpartition("/")[2], error.options) if error.options else ""
        raise ConfigError(f"{file}.yaml is in no folder of configurations{near}") from error
    except HydraException as error:
        raise ConfigError(" ".join(f"{error} {error.__cause__ or ''}".split())) from error
    return {key for leaf, _ in flat(composed) for key in accumulate(leaf.split("."), "{}.{}".format)}
