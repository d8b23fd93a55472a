"""Build objects from sections of the configuration; every error names its key.

The keys of a section are compared with the parameters of the class or function that receives them before it is called.

What takes long is said.
"""

from __future__ import annotations

import inspect
import logging
import math
import re
import traceback
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import partial
from importlib import import_module
from threading import Timer
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from hydra.errors import HydraException, InstantiationException
from hydra.utils import instantiate

from ..envs.base import TeamEnv
from ..envs.history import WithHistory
from ..errors import ConfigError, nearest
from ..runs.callbacks import Callback
from ..runs.fingerprint import flat, matches

SCALARS: dict[Any, str] = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
BOUNDS = ("env", "world", "algorithm.update.clip_norm", "policies.*.algorithm.update.clip_norm")
"""Keys that may be infinite: no bound.  A world may have such keys of its own."""
REFUSE = (ValueError, OSError, ImportError, HydraException)
"""Errors of the values that code was given, as are Troupe's own; a TypeError is one where libraries raise it."""
LIBRARIES = ("troupe", "hydra", "omegaconf", "torch", "lightning", "transformers")
KEYWORD = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def unknown_key(key: str, known: Collection[str]) -> ConfigError:
    """The error for the dotted ``key``, where ``known`` are the names that its last part may be."""
    return ConfigError(f"{key} is an unknown key{nearest(key.rpartition('.')[2], list(known))}")


def check_known(key: str, target: Callable[..., Any], names: Collection[str]) -> None:
    """Raise :class:`ConfigError` if ``target`` has no parameter of one of these ``names`` in the section ``key``.

    ``key`` is "" for the whole configuration.
    """
    parameters = _parameters(target)
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = [parameter.name for parameter in parameters if parameter.kind in KEYWORD]
    for name in names:
        if name not in known:
            raise unknown_key(below(key, name), known)


def check_complete(key: str, target: Callable[..., Any], names: Collection[str], positional: int = 0) -> None:
    """Raise :class:`ConfigError` if a parameter without a default is neither in ``names`` nor one of the first
    ``positional`` ones.
    """
    for parameter in _parameters(target)[positional:]:
        required = parameter.kind in KEYWORD and parameter.default is parameter.empty
        if required and parameter.name not in names:
            raise ConfigError(f"{below(key, parameter.name)} is missing")


def check_finite(config: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for a NaN in ``config``, and for an infinite number that is not a bound."""
    for key, value in flat(config):
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, float) and (math.isnan(number) or (math.isinf(number) and not matches(key, BOUNDS))):
                raise ConfigError(f"{key} must be a finite number, got {value!r}")


def check_types(key: str, target: Callable[..., Any], section: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` if a value in ``section`` is not of the type that ``target`` declares for it: a whole
    number, a number, a text, or true and false.  Other types are left to ``target``.
    """
    hints = _hints(target)
    for name, value in section.items():
        hint = hints.get(name, Any)
        kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        scalars = [kind for kind in kinds if kind in SCALARS]
        others = [kind for kind in kinds if kind not in (*SCALARS, type(None)) and not _is_tensor(kind)]
        if scalars and not others and not any(is_a(value, kind) for kind in kinds):
            expected = " or ".join(dict.fromkeys(SCALARS[kind] for kind in scalars))
            raise ConfigError(f"{below(key, name)} must be {expected}, got {value!r}")


def is_a(value: Any, kind: type) -> bool:
    """Whether ``value`` is of this type: an int is also a float, a bool neither."""
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, int | float if kind is float else kind)


def _is_tensor(kind: Any) -> bool:
    """Whether ``kind`` is ``torch.Tensor``, which torch's optimizers also take; a configuration has none.  By its name:
    the check must not import torch, which takes seconds.
    """
    return getattr(kind, "__module__", "") == "torch" and getattr(kind, "__name__", "") == "Tensor"


def _hints(target: Callable[..., Any]) -> dict[str, Any]:
    """The types of the parameters of ``target``; none where they cannot be told, as in a class written in C."""
    unknown: dict[str, Any] = {}
    while True:
        try:
            is_plain_class = isinstance(target, type) and not is_dataclass(target)
            base, own = _base(target), target.__init__ if is_plain_class else target
            return {**(_hints(base) if base else {}), **get_type_hints(own, localns=unknown)}
        except NameError as error:  # a name that only type checkers import
            if error.name is None or error.name in unknown:
                return {}
            unknown[error.name] = Any
        except (TypeError, AttributeError):  # no function
            return {}


def below(key: str, name: str) -> str:
    """The dotted key of ``name`` in the section ``key``."""
    return f"{key}.{name}" if key else name


def _parameters(target: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of ``target``; any keyword for a function written in C that has no signature."""
    try:
        own = inspect.signature(target).parameters
    except ValueError:
        return [inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)]
    if (base := _base(target)) is None:
        return list(own.values())
    rest = [each for each in _parameters(base) if each.kind is each.KEYWORD_ONLY and each.name not in own]
    return [each for each in own.values() if each.kind is not each.VAR_KEYWORD] + rest


def _base(target: Callable[..., Any]) -> type | None:
    """The class to which ``target``, a class, hands the keywords that it takes as ``**common``; else None."""
    if not isinstance(target, type) or inspect.getfullargspec(target.__init__).varkw != "common":  # type: ignore[misc]
        return None
    return [kind for kind in target.__mro__ if "__init__" in vars(kind)][1]


T = TypeVar("T")


def construct(key: str, kind: type[T], section: Any) -> T:
    """``kind(**section)``; a field of a dataclass whose type is a dataclass is built from the section below it.

    A class with a class method ``read(key, section)`` is built by that.  Raises :class:`ConfigError` naming a key that
    is unknown, missing or wrong.
    """
    if not isinstance(section, Mapping):
        raise ConfigError(f"{key} must hold keys, got {section!r}")
    if (read := getattr(kind, "read", None)) is not None:
        return read(key, section)
    return construct_plainly(key, kind, section)


def construct_plainly(key: str, kind: type[T], section: Mapping[str, Any]) -> T:
    """:func:`construct` without ``kind.read``."""
    check_known(key, kind, section)
    check_complete(key, kind, section)
    check_types(key, kind, section)
    hints = get_type_hints(kind) if is_dataclass(kind) else {}
    values = {name: _value(below(key, name), hints.get(name, Any), value) for name, value in section.items()}
    return call(key, kind, **values)


def _value(key: str, hint: Any, value: Any) -> Any:
    """``value`` converted to the type ``hint`` of a field, if it is a section; the dataclass checks other values."""
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if isinstance(value, tuple(kind for kind in kinds if isinstance(kind, type) and kind is not Any)):
        return value
    for kind in kinds:
        if is_dataclass(kind):
            return construct(key, kind, value)  # type: ignore[arg-type]
        if get_origin(kind) is Mapping:
            if not isinstance(value, Mapping):
                raise ConfigError(f"{key} must hold keys, got {value!r}")
            return {name: _value(below(key, name), get_args(kind)[1], each) for name, each in value.items()}
        if get_origin(kind) is tuple and isinstance(value, list):
            return tuple(value)
    return value


def instantiated(key: str, node: Mapping[str, Any]) -> Any:
    """Hydra's ``instantiate``.  Raises :class:`ConfigError` naming ``key``, or the key below it; and as it is, with a
    note, an error that refuses nothing but is a fault in the code of the class."""
    check_targets(key, {"_target_": None, **node})
    try:
        return instantiate(node)
    except InstantiationException as error:
        place = re.search(r"^full_key: (\S+)$", str(error), re.MULTILINE)  # of the node below, where it is one
        cause = error.__cause__ or error
        if not _refuses(cause):
            cause.add_note(f"making {key}")
            raise cause from None
        raise ConfigError(_refusal(key, cause, place[1] if place else "")) from cause


def _refuses(error: BaseException) -> bool:
    if not isinstance(error, TypeError):
        return isinstance(error, REFUSE) or type(error).__module__.startswith("troupe.")
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals.get("__name__", "").partition(".")[0] in LIBRARIES


def part(key: str, node: Mapping[str, Any], attribute: str) -> Any:
    """:func:`instantiated`.  Raises :class:`ConfigError`, too, for an object of another kind, without ``attribute``."""
    made = instantiated(key, node)
    if not hasattr(made, attribute):
        raise ConfigError(f"{key}._target_={node['_target_']}: a {type(made).__name__} cannot stand here")
    return made


def partially(key: str, node: Mapping[str, Any]) -> Callable[..., Any]:
    """``node`` as a function of the arguments that a configuration cannot contain; errors name ``key``."""
    return partial(_complete, key, instantiated(key, {**node, "_partial_": True}))


def call(key: str, target: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    """``target(*arguments, **keywords)``.  Raises :class:`ConfigError` naming ``key`` for a TypeError or ValueError."""
    try:
        return target(*arguments, **keywords)
    except ConfigError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(_refusal(key, error)) from error


def _complete(key: str, target: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    check_complete(key, target, keywords, len(arguments))
    return call(key, target, *arguments, **keywords)


def check_targets(key: str, node: Any) -> None:
    """Check ``_target_`` and its arguments in ``node`` and in all nodes below it."""
    if isinstance(node, list):
        for index, each in enumerate(node):
            check_targets(f"{key}[{index}]", each)
    if not isinstance(node, Mapping):
        return
    if "_target_" in node:
        if (path := node["_target_"]) is None:
            raise ConfigError(f"{key}._target_ is missing: the name of a class")
        try:
            target = located(path)
        except Exception as error:  # importing a module may raise any
            reason = " ".join(str(error).split())
            raise ConfigError(f"{key}._target_={path} cannot be imported: {reason}") from error
        if not callable(target):
            raise ConfigError(f"{key}._target_={path} is a {type(target).__name__}, which cannot be called")
        names = [name for name in node if not name.startswith("_")]
        check_known(key, target, names)
        check_types(key, target, {name: node[name] for name in names if not _is_node(node[name])})
        if not node.get("_partial_") and "_args_" not in node:
            check_complete(key, target, names)
    for name, each in node.items():
        check_targets(f"{key}.{name}", each)


def located(path: str) -> Any:
    """What the dotted ``path`` names.  Errors of importing its modules are raised as they are."""
    first, *names = path.split(".")
    thing: Any = import_module(first)
    for name in names:
        if not hasattr(thing, name):
            import_module(f"{thing.__name__}.{name}")
        thing = getattr(thing, name)
    return thing


def _is_node(value: Any) -> bool:
    """Whether Hydra makes an object of it."""
    return isinstance(value, Mapping) and "_target_" in value


def _refusal(key: str, error: BaseException, node: str = "") -> str:
    """The error's text, after ``key`` and the ``node`` below it, unless it begins with ``key`` or with a key of the
    world, which is more specific.
    """
    text = str(error)
    return text if text.startswith((key, "env.")) else f"{below(key, node) if node else key}: {text}"


HISTORY = "history"


def build_world(key: str, node: Mapping[str, Any]) -> TeamEnv:
    """The world of ``node``, the section ``key``; with a memory where ``KEY.history`` is not false.

    Raises :class:`ConfigError` naming the key.
    """
    own = {name: value for name, value in node.items() if name != HISTORY}
    world: TeamEnv = part(key, own, "next_agents")
    turns = node.get(HISTORY, False)
    if HISTORY in inspect.signature(located(node["_target_"])).parameters:
        raise ConfigError(
            f"{key}._target_={node['_target_']} has an argument '{HISTORY}', which is Troupe's key for the memory of "
            "any world; call it otherwise"
        )
    if turns is None or turns is False:
        return world
    wrapped: TeamEnv = call(f"{key}.{HISTORY}", WithHistory, world, turns)
    return wrapped


def build_callbacks(nodes: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Callback]:
    """The callbacks of the section ``callbacks``."""
    return {name: part(f"callbacks.{name}", node, "on_iteration_end") for name, node in (nodes or {}).items()}


log = logging.getLogger(__name__)


@contextmanager
def notice(text: str, after_s: float = 3.0) -> Iterator[None]:
    """A context that logs ``text`` where it lasts longer than ``after_s``."""
    timer = Timer(after_s, log.info, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
