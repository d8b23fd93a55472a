"""The replay sampler: what would have come of another message (C3, arXiv 2603.06859)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ...envs.base import StepResult, TeamEnv
from ...experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task, Topology
from ..playing import act, together
from ..policy_client import PolicyClient
from ..seeds import derive
from .base import EpisodeSampler, checked_resample, longest
from .rewards import RewardMix

Said = tuple[tuple[int, ...], list[Completion]]
"""A prompt and what was said to it."""
Aside = tuple[int, Completion]


@dataclass(frozen=True)
class Moment:
    """A step of the main line: the world before it, what each acting agent might have said, and what came of row 0."""

    env: TeamEnv
    said: Mapping[str, Said]
    result: StepResult
    team: float
    """The team's reward, where the step ended a turn; else 0."""


class ReplaySampler(EpisodeSampler):
    """One episode a task, the main line; at each of its messages, K - 1 alternatives from the same prompt, each played
    on to the end of an episode of its own.

    A candidate's team reward is what the team earned from its message on, the mean over ``continuations``: its context
    is frozen, the messages of those who spoke beside it are kept, and those that follow are sampled from the same
    policies with the main line's seeds, so that two equal messages have equal ends.  Its local reward is its own
    message's.  The main line goes on with a candidate that was drawn like the others, not with the best; the messages
    of continuations are asides: they cost, and nothing is learnt from them.

    An episode of S messages costs K S completions and, in a world of one agent a step, (K - 1) S (S - 1) / 2 more.
    """

    topology: Topology = "replay"

    def __init__(
        self,
        *,
        k: int = 4,
        continuations: int = 1,
        alpha: float = 1.0,
        local: bool = True,
        overlong: float = 0.0,
        resample: int = 0,
    ) -> None:
        for key, value in (("k", k), ("continuations", continuations)):
            if value < 1:
                raise ValueError(f"algorithm.sampler.{key} must be at least 1, got {value}")
        self.k, self.continuations = k, continuations
        self.mix, self.resample = RewardMix(alpha, local, overlong), checked_resample(resample)

    def check(self, world: TeamEnv) -> None:
        """Any world will do."""

    def most(self, world: TeamEnv) -> Mapping[str, int]:
        count: Counter[str] = Counter()
        steps = longest(world)
        for index, acting in enumerate(steps):
            count.update(dict.fromkeys(acting, self.k))
            played_on = len(acting) * (self.k * self.continuations - 1)
            for later in steps[index + 1 :]:
                count.update(dict.fromkeys(later, played_on))
        return count

    async def _play(self, world: TeamEnv, task: Task, clients: Mapping[str, PolicyClient], seed: int) -> Episode:
        env = world.fork()
        env.reset(task)
        player = Player(task, clients, seed)
        line: list[Moment] = []
        while not line or not line[-1].result.done:
            before, said = env, await player.ask(env, self.k)
            env = before.fork()
            result, team = await player.step(env, {agent: rows[0].text for agent, (_, rows) in said.items()})
            line.append(Moment(before, said, result, team))
        episode = Episode(task, [], [], env_steps=len(line))
        judged = (self._judged(player, line[i:], agent) for i, moment in enumerate(line) for agent in moment.said)
        nodes = iter(await together(*judged))
        for moment in line:
            first = len(episode.nodes)
            for _ in moment.said:
                node, asides, steps = next(nodes)
                node.parent = first - 1 if first else None
                episode.nodes.append(node)
                episode.asides += asides
                episode.env_steps += steps
            members = {agent: (first + i, 0) for i, agent in enumerate(moment.said)}
            episode.edges.append(JointAction(members, child=len(episode.nodes)))
        outcome = Outcome(line[-1].result.success, env.turn, sum(moment.team for moment in line))
        episode.edges[-1] = JointAction(episode.edges[-1].members, outcome=outcome)
        return episode

    async def _judged(self, player: Player, line: Sequence[Moment], agent: str) -> tuple[Node, list[Aside], int]:
        """The node of ``agent`` at the first moment of ``line``; what its continuations said, and their steps."""
        moment = line[0]
        prompt, rows = moment.said[agent]
        main = {name: said[0].text for name, (_, said) in moment.said.items()}
        places = [(c, again) for c in range(self.k) for again in range(self.continuations) if c or again]
        futures = await together(
            *(player.replay(moment.env, main | {agent: rows[c].text}, again) for c, again in places)
        )
        ends = {(0, 0): (moment.result, sum(step.team for step in line))}
        ends |= {place: (future.result, future.team) for place, future in zip(places, futures, strict=True)}
        candidates = []
        for c, completion in enumerate(rows):
            team = fmean(ends[c, again][1] for again in range(self.continuations))
            result = ends[c, 0][0]
            sampling = player.clients[agent].sampling
            reward = self.mix(team, result.local[agent], completion, sampling)
            candidates.append(Candidate(completion, result.local[agent], team, reward, c == 0, info=result.info))
            candidates[-1].overlong = self.mix.overlong_of(completion, sampling)
        env = moment.env
        node = Node(player.task.task_id, agent, env.turn, prompt, candidates, state=env.state_key())
        asides = [aside for future in futures for aside in future.asides]
        return node, asides, sum(future.steps for future in futures)


@dataclass(frozen=True)
class Future:
    """What came of a message: its own result, the team's reward from it to the end, and what that cost."""

    result: StepResult
    team: float
    asides: list[Aside]
    steps: int


@dataclass(frozen=True)
class Player:
    """Plays one task; equal places draw with equal seeds, whichever line they are on."""

    task: Task
    clients: Mapping[str, PolicyClient]
    seed: int

    async def ask(self, env: TeamEnv, n: int, again: int = 0) -> dict[str, Said]:
        """``n`` answers of each agent that acts now; ``again`` counts the continuations of one message."""
        acting = env.next_agents()
        return dict(zip(acting, await together(*(self._said(env, a, n, again) for a in acting)), strict=True))

    async def _said(self, env: TeamEnv, agent: str, n: int, again: int) -> Said:
        prompt = self.clients[agent].encode(agent, self.task.task_id, env.observe(agent))
        key: tuple[int | str, ...] = (self.task.task_id, env.turn, agent, again)
        return prompt, await self.clients[agent].speak(prompt, n, derive(self.seed, *key), key)

    async def step(self, env: TeamEnv, texts: Mapping[str, str]) -> tuple[StepResult, float]:
        """The result, and the team's reward where the step ended a turn, else 0."""
        turn = env.turn
        result = await act(env, texts)
        return result, result.team if env.turn > turn else 0.0

    async def replay(self, before: TeamEnv, texts: Mapping[str, str], again: int) -> Future:
        """Say ``texts`` in the state ``before``, then play on to the end."""
        env = before.fork()
        first, total = await self.step(env, texts)
        result, asides, steps = first, [], 1
        while not result.done:
            said = await self.ask(env, 1, again)
            asides += [(len(prompt), completion) for prompt, (completion,) in said.values()]
            result, team = await self.step(env, {agent: rows[0].text for agent, (_, rows) in said.items()})
            total, steps = total + team, steps + 1
        return Future(first, total, asides, steps)
