"""Random overrides: each composes to a run that training accepts, or is refused with an error that names its key.

python bench/fuzz_overrides.py                     # 10,000 command lines, in this process
python bench/fuzz_overrides.py --count 500 --full 1

A command line is an experiment, random choices of groups, and one to three overrides of keys with values of every kind.
Its keys are applied by Hydra to the composed experiment, and the parts of the run are made of it; one in --full goes
the whole way of the command line and of a dry run.  Exits with 1 for an error that is not a refusal, or a
refusal that names no key of the command line.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
import warnings
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from troupe.errors import ConfigError
from troupe.models.bases.base_models import BaseModelError
from troupe.rollout.engines.base import EngineError
from troupe.runs.fingerprint import flat
from troupe.setup.checks import checked
from troupe.setup.command_line import check_overrides, parsed
from troupe.setup.composition import choices, configurations
from troupe.setup.dry_run import plan
from troupe.setup.parts import parts_of, plain

GROUPS = ("algorithm", "regime", "engine", "strategy", "logger")
VALUES = (
    "0 1 -1 2 3 7 64 100000 1e-3 0.5 1.5 -0.1 1e30 .inf -.inf nan null true false yes '' abc laptop tool greedy "
    "[] [1] [1,2] [a,b] [null] {} {a:1} {_target_:troupe.envs.couplet.world.Couplet} '1' '0.5' "
    "${seed} ${nothing} ${env} '${oc.env:HOME}' ??? cuda cpu float32 bfloat16 /dev/null 1_000 é 9223372036854775808"
).split(" ")
KEPT = 30
"""Combinations of groups per run: composing one takes longer than judging overrides of it."""
REFUSALS = (ValueError, BaseModelError, EngineError, HydraException, OmegaConfBaseException)


@dataclass
class Report:
    """The outcomes, and the command lines that broke the rule."""

    outcomes: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)


class CommandLines:
    """Draws command lines; composed experiments are kept."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self._composed: dict[tuple[str, ...], DictConfig] = {}

    def draw_groups(self) -> tuple[str, ...]:
        """An experiment, in half of all cases with a choice of a group; most often one that is composed already."""
        rng = self.rng
        if len(self._composed) >= KEPT:
            return rng.choice([*self._composed])
        words = [f"experiment={rng.choice(choices('experiment'))}"]
        if rng.random() < 0.5:
            group = rng.choice(GROUPS)
            words.append(f"{group}={rng.choice(choices(group))}")
        return tuple(words)

    def base(self, groups: tuple[str, ...]) -> DictConfig:
        if groups not in self._composed:
            config = compose("train", overrides=[*groups, "dry_run=true"], return_hydra_config=True)
            HydraConfig.instance().set_config(config)
            with open_dict(config):
                del config["hydra"]
            self._composed[groups] = config
        return self._composed[groups]

    def draw_keys(self, base: DictConfig) -> list[str]:
        """One to three overrides of keys of ``base``, some misspelt, added, removed, or of a whole section."""
        rng, words = self.rng, []
        keys = [key for key, _ in flat(OmegaConf.to_container(base))]
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            key = rng.choice(keys)
            kind = rng.random()
            if kind < 0.06:
                place = rng.randrange(len(key))
                key = key[:place] + rng.choice("xyz_.") + key[place + rng.choice([0, 1]) :]
            elif kind < 0.12:
                key = key.rpartition(".")[0] or key
            elif kind < 0.16:
                key = f"+{key}.{rng.choice(['more', 'k', '_target_'])}"
            elif kind < 0.2:
                key = f"++{key}"
            elif kind < 0.24:
                words.append(f"~{key}")
                continue
            words.append(f"{key}={rng.choice(VALUES)}")
        return words


def outcome(lines: CommandLines, groups: tuple[str, ...], words: list[str], full: bool) -> str:
    """``accepted``, or the name of the refusal; raises ``AssertionError`` with what breaks the rule."""
    config = deepcopy(lines.base(groups))
    try:
        if full:
            check_overrides("train", [*groups, *words])
        OmegaConf.set_struct(config, True)
        lay_over(config, parsed(words))
        if full:
            plan(checked(config)[0])
        else:
            parts_of(plain(config), OmegaConf.to_yaml(config, resolve=False))
    except REFUSALS as error:
        message = " ".join(f"{error} {error.__cause__ or ''}".split())
        if not any(_names(message, key) for word in (*words, *groups) for key in _with_dependents(word, config)):
            raise AssertionError(f"{type(error).__name__} names no key: {message[:300]}") from error
        return type(error).__name__
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise AssertionError(f"{error!r:.300} at {place.filename}:{place.lineno}") from error
    return "accepted"


def lay_over(config: DictConfig, overrides: list[Override]) -> None:
    """Apply overrides of keys in their order, as Hydra does; raises :class:`ConfigError` with one that cannot be."""
    for override in overrides:
        above, _, last = (key := override.key_or_group).rpartition(".")
        try:
            if override.is_delete():
                with open_dict(config):
                    del (OmegaConf.select(config, above) if above else config)[last]
            else:
                add = override.is_add() or override.is_force_add()
                OmegaConf.update(config, key, override.value(), merge=True, force_add=add)
        except (OmegaConfBaseException, TypeError) as error:  # TypeError: there is nothing above it
            raise ConfigError(f"{override.input_line}: {error}") from error


def _with_dependents(word: str, config: DictConfig) -> list[str]:
    """The key of an override, and the keys that take its value by interpolation: these are named where it is wrong."""
    key = word.lstrip("+~").partition("=")[0]
    return [key, *(other for other, value in flat(OmegaConf.to_container(config)) if f"${{{key}" in str(value))]


def _names(message: str, key: str) -> bool:
    """Whether ``message`` has ``key``, its last part, or the key above it."""
    *above, last = key.split(".")
    return last in message or (bool(above) and ".".join(above) in message)


def fuzz(count: int, full: int, seed: int, seconds: float) -> Report:
    """``count`` command lines, or as many as ``seconds`` allow."""
    report, lines, start = Report(), CommandLines(Random(seed)), time.perf_counter()
    with configurations():
        assert GlobalHydra.instance().is_initialized()
        for index in range(count):
            if time.perf_counter() - start > seconds:
                break
            try:
                groups = lines.draw_groups()
                words = lines.draw_keys(lines.base(groups))
            except REFUSALS as error:  # choices of groups that do not go together
                report.outcomes[f"groups: {type(error).__name__}"] += 1
                continue
            try:
                report.outcomes[outcome(lines, groups, words, bool(full) and index % full == 0)] += 1
            except AssertionError as error:
                report.outcomes["broken"] += 1
                report.broken.append(f"{' '.join([*groups, *words])}\n    {error}")
                print(report.broken[-1], flush=True)
    HydraConfig.instance().cfg = None
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--full", type=int, default=100, help="one in so many goes the whole way; 0: none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0)
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    report = fuzz(options.count, options.full, options.seed, options.seconds)
    print(f"{sum(report.outcomes.values()):,} command lines in {time.perf_counter() - start:.0f} s")
    for name, number in report.outcomes.most_common():
        print(f"{number:7,} {name}")
    sys.exit(bool(report.broken))


if __name__ == "__main__":
    main()
