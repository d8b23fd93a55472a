"""Check the overrides of a command line before Hydra composes them; end a refused command with one line."""

from __future__ import annotations

import os
import re
import shlex
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ..errors import ConfigError, near, nearest, visible
from ..evaluation.request import check_source, requested
from ..routing import Router
from ..runs.directory import check_free
from ..runs.files import CHECKPOINTS
from ..runs.fingerprint import flat
from ..runs.run import RunReader
from .composition import all_choices, check_folders, choices, configurations, search_path_words
from .instantiation import build_world, call, check_finite
from .sections import read_config

FLAGS = {
    **dict.fromkeys(("--hydra-help", "--version", "--resolve"), ()),
    **{"--help": ("-h",), "--run": ("-r",), "--multirun": ("-m",), "--shell-completion": ("-sc",)},
}
"""Hydra's options without a value: their short forms."""
VALUES = {
    **{"--cfg": ("-c",), "--package": ("-p",), "--config-path": ("-cp",), "--config-name": ("-cn",)},
    **{"--config-dir": ("-cd",), "--experimental-rerun": ()},
}
"""Hydra's options with a value.  ``--info`` may have one."""

ONE = ("env", "algorithm", "regime", "engine", "strategy", "execution", "scale")
"""Groups of which a run has exactly one choice."""


COMMA = re.compile(r",(?![^\[\]{}()]*[\]})])")
"""Between elements of a list, not within one."""
OPEN_KEYS = ("world", "agents", "echo", "swap", "data")
"""Keys of ``eval`` and ``play`` under which users name keys of their own."""
ANY_RUN = {"loop": {"test_tasks": 1, "validation_tasks": 1}, "seed": 0}
"""Values that an evaluation's keys may have instead of null, before its run is read."""


def check_command_line(config: str, arguments: Sequence[str]) -> list[str]:
    """Check the overrides in ``arguments`` for ``config`` (``train``, ``eval``, ...), with the user's folders.

    With another primary config only Hydra checks them.  Returns the arguments with Hydra's options first, as Hydra
    wants them.  Raises :class:`ConfigError` naming the option, the override, or the run directory that is not there.
    """
    options, unknown = options_parser().parse_known_intermixed_args(list(arguments))
    if unknown:
        hint = f"; a key is given as {unknown[0].strip('-').partition('=')[0]}=VALUE"
        known = [*FLAGS, *VALUES, "--info"]
        raise ConfigError(f"{unknown[0]} is no option{hint if '.' in unknown[0] else nearest(unknown[0], known)}")
    if options.shell_completion and not re.match("(un)?install=|query=", " ".join(options.overrides)):
        raise ConfigError('--shell-completion needs install=bash (or zsh, fish): eval "$(troupe -sc install=bash)"')
    if not options.config_name and not options.config_path and not options.shell_completion:
        with configurations(options.config_dir):
            overrides = parsed(options.overrides)
            if not options.multirun:
                check_one_run(overrides)
            _check_launcher(overrides)
            values = {each.key_or_group: each.value() for each in overrides if not each.is_sweep_override()}
            check_overrides(config, options.overrides)
            if isinstance(resume := values.get("resume"), str):
                path = Path(resume)
                call("resume", _readable, path.parents[1] if path.parent.name == CHECKPOINTS else path)
            _check_team(values, search_path_words(overrides))
    words = list(arguments)
    for override in options.overrides:
        words.remove(override)
    return [*words, *options.overrides]


def check_one_run(overrides: Sequence[Override]) -> None:
    """Raise :class:`ConfigError` naming an override that has the values of several runs."""
    several = next((override for override in overrides if override.is_sweep_override()), None)
    if several is not None and not any(override.key_or_group == "hydra.mode" for override in overrides):
        key, _, values = str(several.input_line).partition("=")
        raise ConfigError(
            f"{several.input_line} has several values: {key}=[{values}] is a list, \"{key}='{values}'\" one text, and "
            "--multirun makes a run of each"
        )


def _check_launcher(overrides: Sequence[Override]) -> None:
    for override in overrides:
        submitit = override.key_or_group == "hydra/launcher" and str(override.value()).startswith("submitit")
        if submitit and not find_spec("submitit"):
            raise ConfigError(f"{override.input_line} needs submitit: pip install -c constraints.txt '.[slurm]'")


def with_open_keys(arguments: Sequence[str]) -> list[str]:
    """``arguments`` with which ``world.size=8`` may name a key that the command's yaml does not list, and
    ``benchmark=a,b`` is a list, which to Hydra would be two runs.
    """
    arguments = [re.sub(r"^(benchmark)=([\w,]*,[\w,]*)$", r"\1=[\2]", word) for word in arguments]
    return [f"++{word}" if re.match(rf"({'|'.join(OPEN_KEYS)})[.=]", word) else word for word in arguments]


def check_overrides(
    config: str, texts: Sequence[str], *, own: Collection[str] = (), taken: Collection[str] = ()
) -> None:
    """:func:`check_command_line` for overrides alone, in the Hydra that is initialised.  ``own`` keys of the command
    are suggested for a misspelt one, too; those that are ``taken`` from ``config`` are not.
    """
    overrides = parsed(texts)
    check_folders(overrides)
    groups = check_choices(overrides)
    if any(override.is_sweep_override() for override in groups):
        return
    # Those of several runs are left to Hydra.
    single = [each for each in overrides if not each.is_sweep_override() and not each.is_hydra_override()]
    words = [*search_path_words(overrides), *(str(each.input_line) for each in single)]
    if config == "train":  # the default name and folder ask Hydra for values that exist only within its main function
        words = [*_UNNAMED, *words]
    strict = [each for each in overrides if each.type is OverrideType.CHANGE and not each.is_hydra_override()]
    keys = [each.key_or_group for each in strict if each not in groups]
    choices = [*search_path_words(overrides), *(str(each.input_line) for each in groups)]
    try:
        cfg = _composed(config, words)
    except ConfigError:  # perhaps because of a key that does not exist
        _check_keys(keys, _composed(config, choices), own, taken)
        raise
    if not _keys(cfg).issuperset(keys):  # a key that does not exist, or one below a value that another override removes
        _check_keys(keys, _composed(config, choices), own, taken)
    values = _plain(cfg)
    check_finite(values)
    if config == "train":
        _check_training(cfg, mapped=any(each.key_or_group.partition(".")[0] == "team" for each in single))
    elif config in ("eval", "play"):
        check_source(values)
        fixed = {} if config == "eval" else {"tasks": 1, "samples": 1}
        requested({**values, **fixed}, ANY_RUN, trained=values["run"] is not None)


_UNNAMED = ("name=none", "run_dir=none")


def _check_keys(keys: Sequence[str], cfg: DictConfig, own: Collection[str], taken: Collection[str]) -> None:
    known, leaves = _keys(cfg), dict(flat(_plain(cfg)))
    for key in keys:
        if key not in known:
            if leaves.get(section := key.rpartition(".")[0]) == {} or section.endswith(".chat"):
                raise ConfigError(f"{key}: {section} lists no such key; a plus adds one: +{key}=VALUE")
            names = (known | {*own}) - {*taken}
            raise ConfigError(f"{key} is an unknown key{near(key, names)} docs/configuration.md lists all keys")


def _check_training(cfg: DictConfig, *, mapped: bool) -> None:
    """Check what a training refuses without any library that takes seconds to import; the team map, which a world's
    agents decide, only where it was ``mapped`` by hand."""
    if any(isinstance(value, str) and "${hydra:" in value for _, value in flat(_plain(cfg))):
        return  # values that exist only within Hydra's main function: the command itself resolves them, or refuses
    try:
        resolved = _plain(cfg, resolve=True)
    except OmegaConfBaseException:
        return
    run = read_config(resolved, None)
    if run.resume is None and run.run_dir != "none":
        call("run_dir", check_free, Path(run.run_dir))
    if run.resume is None and mapped:
        frozen = [name for name, policy in run.policies.items() if not policy.learns]
        call("", Router, run.team, build_world("env", run.env).agents, tuple(run.policies), frozen)


def _check_team(keys: Mapping[str, Any], search_path: Sequence[str]) -> None:
    """Check the run directory, the experiment or the world that the values ``keys`` of a command line name."""
    if len({"run", "exp", "env_name"} & keys.keys()) > 1 or {"run", "overrides"} <= keys.keys():
        return  # the command says which of them belong together
    for key, group in (("exp", "experiment"), ("env_name", "env")):
        if isinstance(name := keys.get(key), str):
            check_overrides("train", [*search_path, f"{group}={name}", *map(str, keys.get("overrides") or [])])
            _check_agents(keys, _composed("train", [*_UNNAMED, *search_path, f"{group}={name}"]))
    if isinstance(run := keys.get("run"), str) and "overrides" not in keys:  # which belong to others
        _check_agents(keys, call("run", _readable, Path(run.partition("@")[0])))


def _check_agents(keys: Mapping[str, Any], cfg: Mapping[str, Any]) -> None:
    """Check the agents that ``keys`` name by those of ``cfg``, unless others of ``keys`` change the world, and perhaps
    with it them."""
    team, others = cfg.get("team"), ("world", "overrides", "benchmark")
    if any(key.partition(".")[0] in others for key in keys) or not isinstance(team, Mapping):
        return
    named = [(key, key.partition(".")[2]) for key in keys if key.startswith(("agents.", "echo."))]
    for key in ("human", "silence", "agent"):
        agents = keys.get(key) or []
        named += [(f"{key}={agent}", agent) for agent in ([agents] if isinstance(agents, str) else agents)]
    for place, agent in named:
        if agent not in team:
            raise ConfigError(f"{place}: the world has no agent '{agent}'{nearest(str(agent), list(team))}")


def _readable(path: Path) -> Mapping[str, Any]:
    return RunReader(path).config


class _Options(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Without its list of options, which has none of the keys."""
        raise ConfigError(message)


def options_parser() -> ArgumentParser:
    """Tells Hydra's options from ``overrides``."""
    parser = _Options(add_help=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--info", "-i", nargs="?", const="all")
    for name, short in FLAGS.items():
        parser.add_argument(name, *short, action="store_true")
    for name, short in VALUES.items():
        parser.add_argument(name, *short)
    return parser


def check_choices(overrides: Sequence[Override]) -> list[Override]:
    """Check the choices of groups; returns the overrides that choose.

    Raises :class:`ConfigError` naming the choice.
    """
    search_path = search_path_words(overrides)
    groups = []
    for override in overrides:
        group = "" if override.is_hydra_override() else override.key_or_group
        known = all_choices(group, search_path) if group else []
        if known:
            _check_choice(override, known)
            groups.append(override)
    return groups


def parsed(texts: Sequence[str]) -> list[Override]:
    """The overrides, by Hydra's grammar.  Raises :class:`ConfigError` naming a text that is not one, with the form that
    is, where only quotes are missing.
    """
    parser = OverridesParser.create()
    overrides = []
    for text in texts:
        try:
            overrides.append(parser.parse_override(text))
        except HydraException as error:
            if (quoted := _quoted(text)) is not None:
                raise ConfigError(
                    f"{text} is no override: its value has characters that need quotes. Give {quoted}, in a shell "
                    f"{shlex.quote(quoted)}"
                ) from error
            raise ConfigError(
                f"{text} is no override: {' '.join(str(error).split())}. Give KEY=VALUE, without spaces beside the =, "
                "each in a word of its own"
            ) from error
    return overrides


def _quoted(text: str) -> str | None:
    """The override ``text`` with its value, or the elements of its list, in quotes; None where that is none either."""
    key, _, value = text.partition("=")
    if not value or value != value.strip():
        return None
    if value.startswith("[") and value.endswith("]"):
        form = f"{key}=[{','.join(map(_in_quotes, COMMA.split(value[1:-1])))}]"
    elif value.startswith(("[", "{")):
        return None
    else:
        form = f"{key}={_in_quotes(value)}"
    try:
        OverridesParser.create().parse_override(form)
    except HydraException:
        return None
    return form


def _in_quotes(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def fail(error: Exception, more: str = "") -> NoReturn:
    """End a command with the message alone, or raise ``error`` where HYDRA_FULL_ERROR=1 asks for all of it."""
    if os.environ.get("HYDRA_FULL_ERROR") == "1":
        raise error
    sys.exit(visible(f"error: {error}{more}"))


def explains_itself(error: Exception, refusal: type[Exception] = ValueError) -> bool:
    """Whether the message of ``error`` is enough: it is one of Troupe's own, a ``refusal``, or of the system.

    Any other is a fault, and so is one with notes, which a world's code has raised.
    """
    known = (OSError, FloatingPointError, OmegaConfBaseException, refusal)
    expected = isinstance(error, known) and not hasattr(error, "__notes__")
    return expected or type(error).__module__.startswith("troupe.")


def end(error: Exception, more: str = "", refusal: type[Exception] = ValueError) -> NoReturn:
    """:func:`fail`, after the traceback of an error that does not explain itself."""
    if explains_itself(error, refusal):
        fail(error, more)
    print(visible("".join(traceback.format_exception(error))), file=sys.stderr, end="")
    sys.exit(visible(f"error: {traceback.format_exception_only(error)[0].strip()}{more}"))


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
            raise ConfigError(f"{group}={name} is unknown{_nearest_choice(group, str(name), known)}")


def _nearest_choice(group: str, name: str, known: Sequence[str]) -> str:
    """Choices that are named after others are shorter to list by these."""
    if group not in ("experiment", "policy"):
        return nearest(name, known)
    first, second = ("env", "regime") if group == "experiment" else ("scale", "env")
    more = "WORLD_REGIME" if group == "experiment" else f"{', '.join(choices(group))}, and SCALE_WORLD"
    return f"{near(name, known)} Known: {more}, of {', '.join(choices(first))}; {', '.join(choices(second))}"


def _keys(cfg: DictConfig) -> set[str]:
    """The dotted keys of all leaves, and of what they are below; of a list's items by their places."""

    def by_place(value: Any) -> Any:
        items = dict(enumerate(value)) if isinstance(value, list) else value
        return {str(key): by_place(item) for key, item in items.items()} if isinstance(items, dict) else items

    return {key for leaf, _ in flat(by_place(_plain(cfg))) for key in accumulate(leaf.split("."), "{}.{}".format)}


def _plain(cfg: DictConfig, *, resolve: bool = False) -> dict[str, Any]:
    return OmegaConf.to_container(cfg, resolve=resolve)  # type: ignore[return-value]


def _composed(config: str, groups: list[str]) -> DictConfig:
    """``config`` with the choices ``groups``."""
    try:
        return compose(config, overrides=groups)
    except MissingConfigException as error:
        file = error.missing_cfg_file or config
        near = nearest(file.rpartition("/")[2], error.options) if error.options else ""
        raise ConfigError(f"{file}.yaml is in no folder of configurations{near}") from error
    except YAMLError as error:
        raise ConfigError(f"not YAML: {' '.join(str(error).split())}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{' '.join(groups)}: one of the files is not YAML, because not text: {error}") from error
    except (HydraException, ValueError) as error:  # a ValueError for a key below a list that is no number
        raise ConfigError(" ".join(f"{error} {error.__cause__ or ''}".split())) from error
