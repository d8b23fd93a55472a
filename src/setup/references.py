"""The keys of ``scale``, which only interpolations refer to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import accumulate
from typing import Any

import yaml
from omegaconf.errors import GrammarParseError
from omegaconf.grammar.gen.OmegaConfGrammarParser import OmegaConfGrammarParser
from omegaconf.grammar_parser import parse

from ..errors import ConfigError
from ..runs.fingerprint import flat


def check_scale(scale: Mapping[str, Any], unresolved: str) -> None:
    """Raise :class:`ConfigError` for a key of ``scale`` that no scale of the package has and that no interpolation of
    ``unresolved``, the yaml of the whole configuration, refers to.
    """
    known = {key for file in _yamls(files("troupe.configs") / "scale") for key in _scale_keys(file)}
    known |= {name for value in _strings(yaml.safe_load(unresolved)) for name in references(value)}
    for leaf, _ in flat(scale, "scale."):
        if known.isdisjoint(accumulate(leaf.split(".")[1:], "{}.{}".format, initial="scale")):
            raise ConfigError(f"{leaf} is an unknown key: no scale of the package has it, and nothing refers to it")


def references(value: str) -> Iterator[str]:
    """The dotted keys that the interpolations of ``value`` refer to, by OmegaConf's grammar."""
    try:
        nodes = [parse(value)]
    except GrammarParseError:  # no interpolation: a string with a brace of its own
        return
    while nodes:
        node = nodes.pop()
        if isinstance(node, OmegaConfGrammarParser.InterpolationNodeContext):
            yield node.getText().removeprefix("${").removesuffix("}")
        nodes += [node.getChild(index) for index in range(node.getChildCount())]


def _scale_keys(file: Traversable) -> Iterator[str]:
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    return (key for key, _ in flat(content.get("scale", {}), "scale."))


def _strings(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, (dict, list)):
        for each in node.values() if isinstance(node, dict) else node:
            yield from _strings(each)


def _yamls(folder: Traversable) -> Iterator[Traversable]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _yamls(entry)
        elif entry.name.endswith(".yaml"):
            yield entry
