"""Actors of Ray in placement groups, what is known of those that are lost, and others in their place.

Nothing here imports Ray before a run has asked for it.

Weights in Ray's object store.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import AbsentError
from .execution import Execution, Resources

log = logging.getLogger(__name__)
Answer = tuple[Any, Exception | None]
"""What an actor returns: its result, or the error that the caller raises instead."""
CONCURRENCY = 100_000
"""Calls that may wait in an asynchronous actor: far more than there are requests."""
GRACE_S = 60
"""How long an actor has for its last call."""


class ClusterError(AbsentError):
    """A cluster that is not there, or without the resources that a run needs."""


class LostActorError(RuntimeError):
    """An actor whose process or node has ended, with what it held."""


NO_RAY = "execution=ray needs Ray: pip install 'troupe-rl[ray]'"


def check_installed() -> None:
    """Raises :class:`ClusterError` without Ray."""
    if find_spec("ray") is None:
        raise ClusterError(NO_RAY)


def connected(execution: Execution) -> Any:
    """The module ``ray``, connected to the cluster.

    A connection that is there already is used.  Warns where no token is asked for: whoever reaches that cluster runs
    code there.  Raises :class:`ClusterError` without Ray, without the cluster, and without its token.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a training run reports nothing to anybody
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise ClusterError(NO_RAY) from error
    if not ray.is_initialized():
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        try:
            ray.init(
                execution.address,
                log_to_driver=False,  # errors come back with the calls
                include_dashboard=None if execution.address or os.environ.get("RAY_ADDRESS") else False,
                # The user's own package; and without the other, an actor that asked for no GPU sees all of its node's.
                runtime_env={"env_vars": {"PYTHONPATH": paths, "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1"}},
            )
        except (ConnectionError, ValueError, ray.exceptions.AuthenticationError) as error:
            raise ClusterError(f"execution.address={execution.address}: {error}") from error
        if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":  # which Ray sets for a cluster of its own
            log.warning(
                "the Ray cluster was joined without a token: whoever reaches its ports runs code on its nodes; give "
                "RAY_AUTH_MODE=token to every node and to the run (docs/scaling.md)"
            )
    return ray


class ActorGroup:
    """``count`` actors of the class ``kind``, a bundle of one placement group each.

    ``spread``: over as many nodes as possible; else on as few as possible.  Raises :class:`ClusterError` where the
    cluster has no room for them within ``execution.start_s``.
    """

    def __init__(
        self,
        name: str,
        kind: type,
        count: int,
        each: Resources,
        execution: Execution,
        *,
        spread: bool = False,
        concurrency: int | None = None,
    ) -> None:
        self.name, self.ray = name, connected(execution)
        groups = import_module("ray.util.placement_group")
        scheduling = import_module("ray.util.scheduling_strategies")
        self.group = groups.placement_group([each.bundle] * count, strategy="SPREAD" if spread else "PACK")
        if not self.group.wait(execution.start_s):
            groups.remove_placement_group(self.group)
            raise ClusterError(
                f"{name}: no room for {count} x {each.bundle} within execution.start_s={execution.start_s:g}; the "
                f"cluster has {_rounded(self.ray.cluster_resources())}, of which "
                f"{_rounded(self.ray.available_resources())} are free (execution.resources says what each process gets)"
            )
        options: dict[str, Any] = {} if concurrency is None else {"max_concurrency": concurrency}
        self.actors: list[Any] = [
            self.ray.remote(kind)
            .options(
                num_cpus=each.cpus,
                num_gpus=each.gpus,
                scheduling_strategy=scheduling.PlacementGroupSchedulingStrategy(self.group, index),
                **options,
            )
            .remote()
            for index in range(count)
        ]

    @property
    def lost(self) -> type[Exception]:
        """What a call raises whose actor has ended."""
        error: type[Exception] = self.ray.exceptions.RayActorError
        return error

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Ends the actors where this fails.  Raises :class:`LostActorError` where one of them is lost."""
        try:
            yield
        except self.lost as lost:
            self.end()
            raise LostActorError(f"{self.name}: a process, or its node, has ended while it started") from lost
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End the actors and give their place back.  May be called twice."""
        if not self.actors or not self.ray.is_initialized():
            return
        for actor in self.actors:
            self.ray.kill(actor)
        self.actors = []
        import_module("ray.util.placement_group").remove_placement_group(self.group)


def _rounded(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{resources.get(name, 0):g} {name}" for name in ("CPU", "GPU"))


def sendable(error: Exception, stand_in: type[Exception]) -> Exception:
    """``error`` where another process can read it, else its text as a ``stand_in``."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # an error of a library may need arguments that its pickle does not have
        return stand_in(f"{type(error).__name__}: {error}")
    return error


def settle(folder: str, threads: int) -> None:
    """Begin the process of an actor: paths mean what they mean to the run, and torch has as many threads."""
    os.chdir(folder)
    torch.set_num_threads(threads)


def answered(work: Callable[[], Any], stand_in: type[Exception]) -> Answer:
    """What ``work`` returns, or the error that it raises, as another process can read it."""
    try:
        return work(), None
    except Exception as error:  # whatever it is, the caller raises it
        return None, sendable(error, stand_in)


async def answer_of(work: Awaitable[Any], stand_in: type[Exception]) -> Answer:
    """As :func:`answered`, of what is awaited."""
    try:
        return await work, None
    except Exception as error:  # whatever it is, the caller raises it
        return None, sendable(error, stand_in)


class RemoteActor:
    """One asynchronous actor of the class ``kind``, and another one in its place where it is lost, at most
    ``execution.restarts`` times.

    ``kind.begin(build, folder, threads)`` is the first call.  ``restore`` lists the calls that bring a new one to where
    the lost one was, each a method's name with its arguments.  ``restarts`` counts them.  Raises
    :class:`LostActorError`, and what the actor answers.
    """

    def __init__(
        self,
        name: str,
        kind: type,
        each: Resources,
        execution: Execution,
        build: Callable[[], Any],
        restore: Callable[[], list[tuple[Any, ...]]] = list,
    ) -> None:
        self.name, self.kind, self.each, self.execution = name, kind, each, execution
        self.build, self.restore, self.restarts = build, restore, 0
        self._replacing = asyncio.Lock()
        self.group = self._start()

    async def present(self) -> Any:
        """Ray's handle of the actor; of the next one, where it is just being replaced."""
        async with self._replacing:
            if not self.group.actors:
                raise LostActorError(f"{self.name} has ended")
            return self.group.actors[0]

    def _start(self) -> ActorGroup:
        group = ActorGroup(self.name, self.kind, 1, self.each, self.execution, concurrency=CONCURRENCY)
        with group.starting():
            _, error = group.ray.get(group.actors[0].begin.remote(self.build, os.getcwd(), torch.get_num_threads()))
            if error is not None:
                raise error
        return group

    async def ask(self, method: str, *arguments: Any) -> Any:
        """What the actor answers, or another one where it is lost meanwhile."""
        while True:
            actor, group = await self.present(), self.group
            try:
                answer, error = await getattr(actor, method).remote(*arguments)
            except group.lost as lost:
                await self.replace(group, lost)
                continue
            except group.ray.exceptions.ObjectLostError as lost:
                raise LostActorError(f"{self.name}: the weights that it was to load are lost") from lost
            if error is not None:
                raise error
            return answer

    def at_once(self, method: str, *arguments: Any) -> Any:
        """As :meth:`ask`, of what is answered without delay; None of an actor that is lost, as the next :meth:`ask`
        will find."""
        if not self.group.actors:
            return None
        try:
            answer, error = self.group.ray.get(getattr(self.group.actors[0], method).remote(*arguments))
        except self.group.lost:
            return None
        if error is not None:
            raise error
        return answer

    async def replace(self, group: ActorGroup, lost: Exception) -> None:
        """Another actor in the place of ``group``'s, unless another caller has done it; yet another, where that one is
        lost before it is ready.  Where the call is cancelled, this goes on: others, and :meth:`end`, wait for it.
        """
        await asyncio.shield(self._replace(group, lost))

    async def _replace(self, group: ActorGroup, lost: Exception) -> None:
        async with self._replacing:
            if self.group is not group:
                return
            if not group.actors:
                raise LostActorError(f"{self.name} has ended") from lost
            while self.group is group:
                if self.restarts == self.execution.restarts:
                    limit = f"execution.restarts={self.execution.restarts}"
                    raise LostActorError(f"{self.name}: its process, or its node, has ended again ({limit})") from lost
                self.restarts += 1
                log.warning("%s: its process, or its node, has ended; another takes its place", self.name)
                await asyncio.to_thread(group.end)
                try:
                    self.group = await self._restored()
                except (LostActorError, group.lost) as again:
                    lost = again
                except group.ray.exceptions.ObjectLostError as gone:
                    raise LostActorError(f"{self.name}: the weights that it had are lost, too") from gone

    async def _restored(self) -> ActorGroup:
        """A new actor, where the lost one was."""
        new = await asyncio.to_thread(self._start)
        try:
            for method, *arguments in self.restore():
                _, error = await getattr(new.actors[0], method).remote(*arguments)
                if error is not None:
                    raise error
        except BaseException:
            await asyncio.to_thread(new.end)
            raise
        return new

    async def end(self, *last: Any) -> None:
        """End the actor, once it has answered ``last``, a method's name with its arguments.  May be called twice."""
        async with self._replacing:
            try:
                if last and self.group.actors:
                    method, *arguments = last
                    async with asyncio.timeout(GRACE_S):
                        await getattr(self.group.actors[0], method).remote(*arguments)
            except (self.group.lost, TimeoutError):
                log.warning("%s has not ended by itself", self.name)
            finally:
                await asyncio.to_thread(self.group.end)


Packed = dict[str, tuple[np.ndarray, str]]
"""Arrays, with the names of torch's dtypes: Ray keeps arrays in shared memory, where the processes of a node read them
without a copy."""


def packed(weights: Mapping[str, Tensor]) -> Packed:
    """``weights`` as arrays; bfloat16, which numpy does not have, as whole numbers of the same bits."""
    result: Packed = {}
    for key, weight in weights.items():
        plain = weight.detach().cpu().contiguous()
        bits = plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain
        result[key] = bits.numpy(), str(plain.dtype).removeprefix("torch.")
    return result


def unpacked(arrays: Packed) -> dict[str, Tensor]:
    """Tensors in the memory of ``arrays``, which must not be written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return {key: torch.from_numpy(array).view(getattr(torch, dtype)) for key, (array, dtype) in arrays.items()}


class StoredWeights(Mapping[str, Tensor]):
    """Weights in Ray's object store, which travel to this process where they are read."""

    def __init__(self, reference: Any) -> None:
        self.reference = reference
        self._weights: dict[str, Tensor] | None = None

    @property
    def _here(self) -> dict[str, Tensor]:
        if self._weights is None:
            self._weights = unpacked(import_module("ray").get(self.reference))
        return self._weights

    def __getitem__(self, key: str) -> Tensor:
        return self._here[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._here)

    def __len__(self) -> int:
        return len(self._here)
