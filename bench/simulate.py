"""A simulator of training iterations: episodes on engines, updates of pools, and how far they may be apart.

Its time is discrete: an event is a completion that ends, a step of a world, or an update.  The completions of one
engine share it: with ``b`` of them it takes ``step_s + b * row_s`` for a token of each.  What an event costs is given
(:class:`Cost`), from a GPU's data sheet or from measured phases; see :mod:`scaling`.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import NamedTuple


@dataclass(frozen=True)
class Cost:
    """Seconds that an engine on one device takes: ``step_s`` and ``row_s`` for a token of each completion that decodes,
    ``prefill_s`` for a token of a prompt; and how many completions decode together at most."""

    step_s: float
    row_s: float
    prefill_s: float
    max_rows: int = 1 << 30


class Pool(NamedTuple):
    """The engines of one pool, all alike."""

    cost: Cost
    engines: int


@dataclass(frozen=True)
class Speaker:
    """One agent's message: its pool, tokens of prompt and completion.

    Completions are ``mean`` tokens with a log-normal spread (standard deviation over mean), ``longest`` at the most.
    """

    pool: str
    prompt: int
    mean: float
    longest: int
    spread: float = 0.0

    def draw(self, rng: Random) -> float:
        return min(_draw(rng, self.mean, self.spread), self.longest)


@dataclass(frozen=True)
class Work:
    """What an iteration plays: ``tasks``, each with the same ``stages`` (agents that speak at the same time) in each of
    ``turns``.  ``tree``: K completions of each prompt, of which one goes on; else K independent episodes.

    After each stage the world takes ``world_s`` seconds, log-normal with ``world_spread``.
    """

    tasks: int
    k: int
    turns: int
    stages: tuple[tuple[Speaker, ...], ...]
    tree: bool = True
    world_s: float = 0.0
    world_spread: float = 0.0

    def world(self, rng: Random) -> float:
        return _draw(rng, self.world_s, self.world_spread)


class Result(NamedTuple):
    """Means over the iterations after the first ones."""

    iteration_s: float
    staleness: float
    """Updates between the weights that began a task and the update that learns from it."""
    oldest: int
    """The same at the most."""


def _draw(rng: Random, mean: float, spread: float) -> float:
    if not spread or not mean:
        return mean
    sigma = math.sqrt(math.log1p(spread * spread))
    return rng.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)


class Events:
    """What will happen, in order."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + seconds, next(self._order), action))

    def next(self) -> None:
        self.now, _, action = heapq.heappop(self._heap)
        action()


@dataclass(eq=False)
class Request:
    """Completions of one prompt, which is read when the first joins; ``done`` is called when the last has ended."""

    prompt: int
    lengths: list[float]
    done: Callable[[], None]
    left: int = field(init=False)
    is_read: bool = False

    def __post_init__(self) -> None:
        self.left = len(self.lengths)


class Engine:
    """One engine.  ``_read`` tokens of each completion were decoded since the start: a clock that they share."""

    def __init__(self, cost: Cost, events: Events) -> None:
        self.cost, self.events = cost, events
        self._rows: list[tuple[float, int, Request]] = []
        self._waiting: deque[tuple[float, Request]] = deque()
        self._order = count()
        self._read = self._at = self._stalled_until = 0.0
        self._plan = 0  # of the next event; an older one is void
        self._is_loading = False
        self._drained: Callable[[], None] | None = None

    @property
    def load(self) -> int:
        return len(self._rows) + len(self._waiting)

    def submit(self, request: Request) -> None:
        self._advance()
        self._waiting.extend((length, request) for length in request.lengths)
        self._admit()

    def drain(self, drained: Callable[[], None]) -> None:
        """Let no completion join until :meth:`resume`; ``drained`` is called when all that decode have ended."""
        self._is_loading, self._drained = True, drained
        self._advance()
        self._admit()

    def resume(self) -> None:
        self._is_loading = False
        self._advance()
        self._admit()

    def _token_s(self) -> float:
        return self.cost.step_s + self.cost.row_s * len(self._rows)

    def _advance(self) -> None:
        start, now = max(self._at, self._stalled_until), self.events.now
        if self._rows and now > start and self._token_s():
            self._read += (now - start) / self._token_s()
        self._at = now

    def _admit(self) -> None:
        while self._waiting and len(self._rows) < self.cost.max_rows and not self._is_loading:
            length, request = self._waiting.popleft()
            if not request.is_read:
                request.is_read = True
                seconds = request.prompt * self.cost.prefill_s
                self._stalled_until = max(self._stalled_until, self.events.now) + seconds
            heapq.heappush(self._rows, (self._read + length, next(self._order), request))
        self._schedule()
        if self._drained is not None and not self._rows:
            drained, self._drained = self._drained, None
            drained()

    def _schedule(self) -> None:
        self._plan += 1
        if self._rows:
            plan, start = self._plan, max(self._at, self._stalled_until) - self.events.now
            seconds = max(self._rows[0][0] - self._read, 0.0) * self._token_s()
            self.events.after(start + seconds, lambda: self._ended(plan))

    def _ended(self, plan: int) -> None:
        if plan != self._plan:
            return
        self._at = self.events.now
        self._read = max(self._read, self._rows[0][0])
        ended: list[Request] = []
        while self._rows and self._rows[0][0] <= self._read:
            request = heapq.heappop(self._rows)[2]
            request.left -= 1
            if not request.left:
                ended.append(request)
        self._admit()
        for request in ended:
            request.done()


class Training:
    """Rollouts and updates, by the rules of docs/asynchrony.md.

    A task may begin while the tasks before it are fewer than ``(updates + 1 + staleness) * work.tasks``.  An update
    takes the ``work.tasks`` oldest of those that have ended, once the tasks that it leaves can all be learnt from at
    most ``staleness`` updates after they began.  Then the pools get their weights, one after the other: the completions
    of a pool's engines end, and what is requested meanwhile waits until the load has taken ``load_s``.

    With ``staleness`` 0 an update waits for all of an iteration, and the engines wait for it.
    """

    def __init__(
        self,
        work: Work,
        pools: Mapping[str, Pool],
        *,
        update_s: float,
        load_s: float,
        staleness: int = 0,
        seed: int = 0,
        last: int | None = None,
    ) -> None:
        """``last``: the iteration with which the run ends, for which no task begins that it would not learn from."""
        self.work, self.staleness, self.update_s, self.load_s = work, staleness, update_s, load_s
        self.events, self.rng = Events(), Random(seed)
        self.engines = {name: [Engine(p.cost, self.events) for _ in range(p.engines)] for name, p in pools.items()}
        self.started = self.version = 0
        self.most = math.inf if last is None else last * work.tasks
        self.updating = False
        # How many tasks, by the version that they began with; of ``ended``, those that are not learnt from.
        self.going: Counter[int] = Counter()
        self.ended: Counter[int] = Counter()
        self.times: list[float] = []
        self.lags: list[list[int]] = []  # by update, of its tasks

    def run(self, iterations: int, first: int = 1) -> Result:
        """Means over ``iterations`` after the ``first``."""
        self._begin_tasks()
        while self.version < first + iterations:
            self.events.next()
        before = self.times[first - 1] if first else 0.0
        seconds = (self.times[-1] - before) / iterations
        lags = [lag for each in self.lags[first : first + iterations] for lag in each]
        return Result(seconds, sum(lags) / len(lags), max(lags))

    def _begin_tasks(self) -> None:
        while self.started < min((self.version + 1 + self.staleness) * self.work.tasks, self.most):
            self.started += 1
            version, left = self.version, 1 if self.work.tree else self.work.k
            ends = [left]
            self.going[version] += 1

            def ended(version: int = version, ends: list[int] = ends) -> None:
                ends[0] -= 1
                if not ends[0]:
                    self.going[version] -= 1
                    self.ended[version] += 1
                    self._update()

            for _ in range(left):
                self._stage(0, ended)

    def _stage(self, index: int, ended: Callable[[], None]) -> None:
        """The stage of this index over all turns, and what follows."""
        if index == self.work.turns * len(self.work.stages):
            ended()
            return
        speakers = self.work.stages[index % len(self.work.stages)]
        left = [len(speakers)]

        def spoken() -> None:
            left[0] -= 1
            if not left[0]:
                self.events.after(self.work.world(self.rng), lambda: self._stage(index + 1, ended))

        rows = self.work.k if self.work.tree else 1
        for speaker in speakers:
            engine = min(self.engines[speaker.pool], key=lambda each: each.load)
            engine.submit(Request(speaker.prompt, [speaker.draw(self.rng) for _ in range(rows)], spoken))

    def _update(self) -> None:
        tasks = self.work.tasks
        if self.updating or self.ended.total() < tasks:
            return
        taken = Counter(sorted(self.ended.elements())[:tasks])
        if not self._may_leave(self.going + self.ended - taken):
            return
        self.updating = True
        self.ended -= taken
        self.lags.append([self.version - version for version in taken.elements()])
        self.events.after(self.update_s, lambda: self._load(iter(self.engines.values())))

    def _may_leave(self, left: Counter[int]) -> bool:
        """Whether the coming updates can take all of ``left`` in time, as :meth:`rollout.ahead.Ahead._may_go`."""
        ages = [self.version - version for version in left.elements()]
        bound = self.staleness
        return all(sum(age >= bound - k for age in ages) <= k * self.work.tasks for k in range(bound))

    def _load(self, pools: Iterator[list[Engine]]) -> None:
        """New weights for the next of ``pools``, and then for those after it."""
        engines = next(pools, None)
        if engines is None:
            self._loaded()
            return
        left = [len(engines)]

        def drained() -> None:
            left[0] -= 1
            if not left[0]:
                self.events.after(self.load_s, loaded)

        def loaded() -> None:
            for engine in engines:
                engine.resume()
            self._load(pools)

        for engine in engines:
            engine.drain(drained)

    def _loaded(self) -> None:
        self.updating, self.version = False, self.version + 1
        self.times.append(self.events.now)
        self._begin_tasks()
        self._update()
