"""What training refuses before any model is loaded; a dry run asks the same."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import torch
from omegaconf import DictConfig, OmegaConf
from torch.optim import Optimizer

from ..cluster.actors import check_installed
from ..envs.base import TeamEnv
from ..envs.datasets import without_downloads
from ..envs.returned import TaskSource, check_start
from ..errors import AbsentError, ConfigError, number_of
from ..experience import Split
from ..models.bases.base_models import MADE, SHIPPED, is_gguf, place, resolve
from ..models.bases.known import PUBLISHED, ShippedTokenizer, shipped_shape
from ..models.bases.reading import full_base, is_adapter
from ..models.learning.settings import named_layers
from ..models.pools.checkpoint import CheckpointFolder
from ..models.pools.strategies import StrategySettings
from ..rollout.chat_codec import ChatCodec
from ..rollout.chat_template import check_chat, try_prompts
from ..rollout.engines.base import Engine
from ..rollout.engines.outline import KINDS, Outline, Shape
from ..rollout.engines.remote.engine import check_client
from ..rollout.playing import prompt_of
from ..rollout.policy_client import PolicyClient
from ..runs.budget import LoopSettings
from ..runs.directory import ReadOnlyRunDirectory, check_free
from ..runs.files import CHECKPOINTS
from ..runs.fingerprint import flat, nested
from ..runs.older import with_current_config
from ..runs.progress import Progress
from ..runs.run import RunReader
from .critics import KEY, CriticSpec
from .instantiation import build_callbacks, call, check_complete, instantiated, notice
from .parts import Parts, parts_of, plain
from .policies import PolicySpec, backbones, check_context_fits
from .resume import check_equal, continued, locate
from .sections import check_threads

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase


class Checked(NamedTuple):
    """What this machine ``lacks``, a sentence each; some prompts of the world's, token ids, by policy; and the
    ``source`` of its tasks, which has drawn those of evaluations."""

    lacks: list[str]
    prompts: dict[str, list[tuple[int, ...]]]
    source: TaskSource


def checked(cfg: DictConfig) -> tuple[Parts, list[str]]:
    """What :func:`.assembly.build` would put together of ``cfg`` before any model is loaded, and what this machine
    lacks (see :func:`check`).  Raises as :func:`.assembly.build` does; nothing is written.
    """
    if cfg.resume is None:
        parts = parts_of(plain(cfg), OmegaConf.to_yaml(cfg, resolve=False))
        return parts, check(parts, new=True, starts=False).lacks
    run, checkpoint = locate(cfg.resume)
    parts = parts_of(plain(continued(cfg, run)), None)
    check_resumed(parts, checkpoint)
    return parts, check(parts, new=False, starts=False).lacks


def check(parts: Parts, *, new: bool, starts: bool = True) -> Checked:
    """Refuse what training refuses before any model is loaded; ``new``: the run does not go on from a checkpoint.

    Where the run does not start now (a dry run), perhaps never on this machine, nothing is fetched, and what this
    machine lacks is no reason to refuse: it is returned, with what could not be checked for that.
    Raises ``ValueError`` (or a subclass) naming the key; nothing is written and no weights are loaded.
    """
    machine, run = Machine(starts), parts.config
    checkpoints_of(parts)
    if run.execution.on_ray:
        machine.ask(check_installed)
    machine.ask(call, "strategy", check_strategy, parts.strategy)
    for name, spec in parts.policies.items():
        if spec.place is not None:
            machine.ask(call, f"policies.{name}", check_strategy, spec.place)
    for critic in parts.critics.values():
        if critic.place is not None:
            machine.ask(call, "algorithm.critic", check_strategy, critic.place)
    if new:
        check_free(Path(run.run_dir))
    for name, node in run.logger.items():
        machine.ask(instantiated, f"logger.{name}", node)
    machine.ask(build_callbacks, run.callbacks)
    bases = check_policies(parts.policies, machine)
    check_critics(parts.critics, bases, machine)
    check_demonstrators(parts.world, parts.router.team, parts.policies)
    check_tools(parts.world, parts.router.team, parts.policies)
    clients = clients_of(parts.router.team, parts.policies, bases)
    source = TaskSource(parts.world)
    prompts = check_tasks(source, parts.settings, clients, parts.sampler.resample, machine)
    return Checked(machine.lacks, prompts, source)


def check_strategy(settings: StrategySettings) -> None:
    """Raise as :func:`..models.pools.fabrics.trainable_fabric`; Lightning is imported only where it has a say."""
    if not settings.plain:
        from ..models.pools.fabrics import trainable_fabric

        trainable_fabric(settings)


def check_resumed(parts: Parts, checkpoint: str) -> None:
    """Refuse what :func:`.assembly.assemble` would of the ``checkpoint`` that a run goes on from; nothing is locked.

    Raises :class:`..errors.ConfigError`, :class:`..models.pools.checkpoint.CheckpointError`,
    :class:`..runs.directory.RunDirectoryError`.
    """
    checkpoints = checkpoints_of(parts)
    check_state(checkpoints.state(checkpoint), parts.settings, checkpoints)


def check_state(state: dict[str, Any], settings: LoopSettings, checkpoints: CheckpointFolder) -> None:
    """Refuse to go on from ``state`` with another configuration, past its end, or without the rows before it."""
    directory, progress = ReadOnlyRunDirectory(checkpoints.path.parent), Progress.of(state)
    written = f"{directory.path / 'config.yaml'} was changed since {checkpoints.at(progress.iteration)}"
    before = dict(flat(with_current_config(nested(state["config"]))))
    check_equal(before, dict(checkpoints.config), written)
    over = settings.budget.exhausted(progress.iteration, progress.completions)
    if over and RunReader(directory.path).status == "finished":
        raise ConfigError(
            f"resume={directory.path}: the run has finished, after {number_of(progress.iteration, 'iteration')}; to go "
            "on, give a larger loop.iterations (it is the total), or loop.completions"
        )
    directory.check_rows(progress.iteration - bool(progress.row))


def checkpoints_of(parts: Parts) -> CheckpointFolder:
    """The folder of checkpoints in the run directory.  Raises :class:`ConfigError`."""
    path = Path(parts.config.run_dir) / CHECKPOINTS
    settings, pools = asdict(parts.config.loop.checkpoint), {each.every for each in parts.past.values()}
    folder: CheckpointFolder = call("loop.checkpoint", CheckpointFolder, path, parts.binding, **settings, pools=pools)
    return folder


def set_threads(*counts: int | None) -> int | None:
    """Let torch use as many threads as the first of ``counts`` that is not null says.  Raises :class:`ConfigError`."""
    count = next((count for count in counts if count is not None), None)
    check_threads(count)
    if count is not None:
        torch.set_num_threads(count)
    return count


T = TypeVar("T")


@dataclass
class Machine:
    """This machine, on which the run ``starts`` now or not.  Where it does not, it may lack what the run needs, and
    nothing is fetched: what it ``lacks``, and what could not be checked for that, are collected here.
    """

    starts: bool
    lacks: list[str] = field(default_factory=list)

    def ask(self, work: Callable[..., T], *arguments: Any) -> T | None:
        """``work(*arguments)``; None where this machine lacks what that takes, and the run does not start on it."""
        try:
            return work(*arguments)
        except ValueError as error:
            if self.starts or not any(isinstance(cause, AbsentError) for cause in _causes(error)):
                raise
            if str(error) not in self.lacks:  # pools lack the same
                self.lacks.append(str(error))
            return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


# ---- base models, adapters, optimizers, engines ---------------------------------------------------------------------


@dataclass(frozen=True)
class Base:
    """What is known of a base model without its weights; no ``tokenizer``: it would have to be fetched."""

    shape: PretrainedConfig | Shape
    tokenizer: PreTrainedTokenizerBase | ShippedTokenizer | None


def check_policies(policies: Mapping[str, PolicySpec], machine: Machine) -> dict[str, Base]:
    """Refuse what pools and engines would; returns the base of each policy with a model here.

    Raises ``ValueError`` (or a subclass) naming the key.
    """
    bases: dict[str, Base] = {}
    for spec in policies.values():
        if spec.remote is not None:
            machine.ask(check_client, spec.name, spec.remote)
    for specs in backbones(policies):
        key = f"policies.{specs[0].name}.base"
        _check_adapter_base(specs)
        base = look_at(key, specs[0].base, machine)
        bases |= {spec.name: base for spec in specs}
        for spec in specs:
            if base.tokenizer is not None:
                check_chat(f"policies.{spec.name}", base.tokenizer, spec.chat)
                if spec.base not in SHIPPED:
                    try_prompts(f"policies.{spec.name}", base.tokenizer, spec.chat)
            for way, sampling in spec.samplings:
                context = base.shape.max_position_embeddings
                check_context_fits(f"policies.{spec.name}.{way}", sampling, spec.base, context)
        model = call(key, meta_model, base.shape)
        adapters = {spec.name: spec.lora for spec in specs if spec.lora is not None}
        for name, lora in adapters.items():
            named_layers(name, lora, model)
        _check_optimizers(specs)
        ranks = {name: lora.r for name, lora in adapters.items()}
        machine.ask(_check_engine, specs, model, base, ranks)
    return bases


def _check_adapter_base(specs: Sequence[PolicySpec]) -> None:
    for spec in specs:
        if spec.lora is not None and is_adapter(Path(spec.base)):
            raise ConfigError(
                f"policies.{spec.name}.base={spec.base} is an adapter itself, and peft writes no adapter of an "
                "adapter: train on with tuning=full, or merge it into a model of its own first"
            )


def look_at(key: str, base: str, machine: Machine) -> Base:
    """What is known of ``base``.

    Raises :class:`ConfigError` naming ``key`` where what can be looked at cannot be loaded.
    """
    if not machine.starts and (shipped := shipped_shape(base)) is not None:
        return Base(shipped, ShippedTokenizer(Path(place(base))))
    from ..models.bases.hub import check_available, is_here  # and the hub's client

    path, whole, here = place(base), place(full_base(base)), not machine.starts
    if here and not is_gguf(base) and not (is_here(path) and is_here(whole)):
        how = f"would be made first (`make {base}`)" if base in MADE else "would be fetched from the hub"
        machine.lacks.append(f"{key}={base} {how}: its chat template and its agents' prompts were not checked")
        return Base(shape_of(key, base), None)
    from ..models.bases.loading import load_shape, load_tokenizer

    path, whole = resolve(base), resolve(full_base(base))
    try:
        check_available(path)
        shape = load_shape(whole, from_hub=not here)
        return Base(shape, load_tokenizer(path, from_hub=not here))
    except (OSError, ValueError) as error:  # missing, or damaged in some file
        raise ConfigError(f"{key}={base} cannot be loaded: {error}") from error


def shape_of(key: str, base: str) -> PretrainedConfig | Shape:
    """The configuration of ``base``, where Troupe knows it without transformers.  Raises :class:`ConfigError`."""
    whole = full_base(base)
    if (known := shipped_shape(whole) or PUBLISHED.get(whole)) is not None:
        return known
    from ..models.bases.hub import check_available
    from ..models.bases.loading import load_shape

    try:
        check_available(resolve(whole))
        return load_shape(whole)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{key}={base} cannot be found: {error}") from error


def meta_model(shape: PretrainedConfig | Shape, *, whole: bool = False) -> PreTrainedModel | Outline:
    """A model without weights, on torch's meta device; with ``whole`` always transformers' own."""
    if isinstance(shape, Shape) and not whole:
        return KINDS[shape.model_type](shape)
    from transformers import AutoConfig

    from ..models.bases.loading import empty_model

    if isinstance(shape, Shape):
        shape = AutoConfig.for_model(**shape.known)
    with torch.device("meta"):
        return empty_model(shape)


def _check_optimizers(specs: Sequence[PolicySpec]) -> None:
    """Try optimizers and schedulers on a few numbers: a matrix, and a vector where a whole model learns."""
    shapes = [(2, 2), (2,)] if specs[0].full_weights else [(2, 2)]
    with without_compiler():
        for config in (spec.train_config for spec in specs if spec.train_config is not None):
            config.scheduler(config.optimizer([torch.nn.Parameter(torch.zeros(shape)) for shape in shapes]))


@contextmanager
def without_compiler() -> Iterator[None]:
    """A context in which optimizers are made without torch's compiler, whose import takes seconds: torch imports it
    only to keep it away from this method."""
    method = Optimizer.add_param_group
    Optimizer.add_param_group = getattr(method, "__wrapped__", method)  # type: ignore[method-assign]
    try:
        yield
    finally:
        Optimizer.add_param_group = method  # type: ignore[method-assign]


def _check_engine(
    specs: Sequence[PolicySpec],
    model: PreTrainedModel | Outline,
    base: Base,
    ranks: Mapping[str, int],
) -> None:
    """Refuse keys that the engine does not have, and what its class can ``check`` of a model on the meta device."""
    key = specs[0].engine_key
    engine = instantiated(key, {**specs[0].engine, "_partial_": True})
    signature = inspect.signature(engine.func)
    check_complete(key, engine.func, {"models", "tokenizer", *engine.keywords})
    defaults = {name: value.default for name, value in signature.parameters.items() if value.default is not value.empty}
    if (check := getattr(engine.func, "check", None)) is not None:
        names, tokenizer = [spec.name for spec in specs], base.tokenizer
        if isinstance(base.shape, Shape) and not engine.func.__module__.startswith("troupe."):
            model = meta_model(base.shape, whole=True)  # what the user's own engine looks at is not known
            from ..models.bases.loading import load_tokenizer

            tokenizer = load_tokenizer(resolve(specs[0].base), from_hub=False)
        call(key, check, names, model, tokenizer, ranks, **defaults | engine.keywords)


def check_critics(critics: Mapping[str, CriticSpec], bases: Mapping[str, Base], machine: Machine) -> None:
    """Refuse critics that could not be built, or that could not read their policies' tokens; ``bases`` are by policy.

    Raises ``ValueError`` (or a subclass) naming the key.
    """
    for spec in critics.values():
        with without_compiler():
            spec.optimizer([torch.nn.Parameter(torch.zeros(2, 2)), torch.nn.Parameter(torch.zeros(2))])
        own = look_at(f"{KEY}.base", spec.base, machine)
        for policy in spec.policies:
            other = bases[policy].tokenizer
            if own.tokenizer is None or other is None:
                continue  # not on this machine
            if own.tokenizer.get_vocab() != other.get_vocab():
                raise ConfigError(
                    f"{KEY}.base={spec.base} cannot read the tokens of policy '{policy}', whose vocabulary is another"
                )


# ---- tasks ----------------------------------------------------------------------------------------------------------


def clients_of(
    agents: Mapping[str, str], policies: Mapping[str, PolicySpec], bases: Mapping[str, Base]
) -> dict[str, list[PolicyClient]]:
    """By agent, who writes its prompts in training and in evaluation; nobody where its tokenizer is not here."""
    clients: dict[str, list[PolicyClient]] = {}
    for agent, name in agents.items():
        spec, base = policies[name], bases.get(name)
        tokenizer = ChatCodec() if base is None else base.tokenizer
        context = sys.maxsize if base is None else base.shape.max_position_embeddings
        nobody = cast(Engine, None)  # nothing is generated
        clients[agent] = [
            PolicyClient(name, nobody, tokenizer, context, sampling, spec.chat)
            for sampling in spec.sampling_of(agent)
            if tokenizer is not None
        ]
    return clients


def check_demonstrators(world: TeamEnv, agents: Mapping[str, str], policies: Mapping[str, PolicySpec]) -> None:
    """Raise :class:`ConfigError` where a scripted policy is to speak in a world without demonstrations."""
    for name in agents.values():
        if policies[name].skill not in (None, "silent") and not world.has_demonstrations:
            raise ConfigError(
                f"policies.{name}.tuning=scripted: {type(world).__name__} has no demonstrations; give "
                f"policies.{name}.skill=silent, or a policy with a model"
            )


def check_tools(world: TeamEnv, agents: Mapping[str, str], policies: Mapping[str, PolicySpec]) -> None:
    """Raise :class:`ConfigError` where a server speaks for an agent with tools."""
    for agent in world.agents:
        if world.tools(agent) is not None and policies[agents[agent]].remote is not None:
            raise ConfigError(
                f"policies.{agents[agent]}.tuning=remote: a remote policy calls no tools so far, and agent '{agent}' "
                "has some; give env.tools=null"
            )


def check_tasks(
    source: TaskSource,
    settings: LoopSettings,
    clients: Mapping[str, Sequence[PolicyClient]],
    resample: int,
    machine: Machine,
) -> dict[str, list[tuple[int, ...]]]:
    """Draw the tasks of each split, and write the prompts of the agents that open an episode; of one task per split
    first, because drawing all of them may take minutes.  Returns prompts of each policy, token ids, of few tasks.

    An iteration may need ``resample`` times more training tasks.  Raises :class:`ConfigError` where a split holds too
    few tasks, or those of another, ``PromptError`` where a policy cannot read a prompt, and ``WorldValueError`` where
    the world shows none.
    """
    prompts: dict[str, list[tuple[int, ...]]] = {}
    train = settings.tasks_per_iteration * (1 + resample)
    splits: list[tuple[str, Split, int]] = [
        ("tasks_per_iteration", "train", train),
        ("validation_tasks", "validation", settings.validation_tasks),
        ("test_tasks", "test", settings.test_tasks),
    ]
    for key, split, count in [*((key, split, 1) for key, split, _ in splits), *splits]:
        seed = 0 if split == "train" else settings.task_seed
        said = notice(f"drawing {count} {split} task{'s' if count > 1 else ''}, some seconds in this world ...")
        with said, nullcontext() if machine.starts else without_downloads():
            tasks = machine.ask(call, f"loop.{key}", source.tasks, split, count, seed) or []
        if split != "train":
            source.held_out[split] = tasks
        for task in {task.world: task for task in tasks}.values():
            env = source.world.fork()
            env.reset(task)
            if not env.begins_at_reset:  # the prompts are those of a program that does not run yet
                continue
            check_start(env)
            for agent in env.next_agents():
                for client in clients[agent]:
                    prompt = client.encode(agent, task.task_id, prompt_of(env, agent), env.tools(agent))
                    prompts.setdefault(client.policy, []).append(prompt)
    return prompts
