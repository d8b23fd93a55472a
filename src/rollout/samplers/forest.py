"""The forest sampler: whole episodes that branch at drawn steps (the rollout of Tree-GRPO, arXiv 2509.21240), or all at
their second step (that of GRPO-MA, arXiv 2509.24494)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ...envs.base import TeamEnv
from ...experience import Episode, Topology
from ..playing import Answer, Transition, gather, play_on
from .joint import JointNode, JointStep, to_episode
from .sampler import EpisodeSampler, check_at_least, check_forkable, max_steps
from .task_rollout import RewardMix, Said, TaskRollout, said_in, said_with, try_aligned

BranchAt = Literal["drawn", "second"]


@dataclass(frozen=True)
class BranchPoint:
    """A state of a tree's first episode, after its first step."""

    env: TeamEnv
    node: JointNode
    path: tuple[int, ...]
    team_return: float
    """What the team had earned before."""
    after: Said
    """What was said before."""


class ForestSampler(EpisodeSampler):
    """``k`` trees per task.  A tree begins as one whole episode; ``expansions`` steps are drawn, evenly and with
    replacement, and at each the agents that act there answer once more, and the episode is played on to its end.

    So each leaf of a tree is the end of an episode whose messages all come from the policies, and no message is judged
    before the end.  The first step is not drawn, since an episode from there is a tree of its own.  Steps are drawn
    from the world's horizon, and one that the tree's first episode does not reach adds no branch: drawn from the steps
    of the episode itself, a step of a short episode would branch more often, and so the messages would decide how much
    they count.  A tree has 1 + ``expansions`` leaves at most.  All K first messages come from one prompt, and so from
    one request.  Where several agents act at once, a branch is a new joint action.

    ``branch_at=second``: no step is drawn; all branches leave a tree at its second step, so that each of the K first
    messages has 1 + ``expansions`` answers that were sampled independently.

    Where one agent acts per step, episodes of S of the horizon's H messages cost, on average,
    K (S + ``expansions`` S (S - 1) / (2 (H - 1))) completions; with ``branch_at=second``
    K (1 + (1 + ``expansions``) (S - 1)).
    """

    topology: Topology = "forest"

    def __init__(self, *, k: int = 2, expansions: int = 2, branch_at: BranchAt = "drawn", resample: int = 0) -> None:
        check_at_least(1, k=k)
        check_at_least(0, expansions=expansions, resample=resample)
        if branch_at not in get_args(BranchAt):
            raise ValueError(f"algorithm.sampler.branch_at must be {' or '.join(get_args(BranchAt))}, got {branch_at}")
        self.k, self.expansions, self.branch_at, self.resample = k, expansions, branch_at, resample
        self.mix = RewardMix()

    def check(self, world: TeamEnv) -> None:
        check_forkable(world)

    def max_completions(self, world: TeamEnv) -> Mapping[str, int]:
        first, *later = max_steps(world)
        count = Counter(dict.fromkeys(first, self.k))
        for acting in later:
            count.update(dict.fromkeys(acting, self.k * (1 + self.expansions)))
        return count

    async def _play(self, world: TeamEnv, rollout: TaskRollout) -> Episode:
        env = await rollout.start(world)
        answers = await rollout.sample_all(env, self.k)
        root = _joint_node(rollout, env, answers, await try_aligned(env, answers), ())
        steps = len(max_steps(world))
        await gather(*(self._grow(rollout, root, tree, self.draw(rollout, tree, steps)) for tree in range(self.k)))
        return to_episode(rollout.task, root, best_of_k=False)

    def draw(self, rollout: TaskRollout, tree: int, steps: int) -> list[int]:
        """The steps at which ``tree`` branches, of an episode of at most ``steps``."""
        if self.branch_at == "second" or steps == 1:
            return [1] * self.expansions
        return rollout.rng("expansions", tree).choices(range(1, steps), k=self.expansions)

    async def _grow(self, rollout: TaskRollout, root: JointNode, tree: int, steps: Sequence[int]) -> None:
        """Play on from the joint action ``tree`` of ``root`` to the end; then add branches at those of ``steps`` that
        were reached."""
        points = await _play_on(rollout, root, tree, (tree,), 0.0, ())
        drawn = [points[step - 1] for step in steps if step <= len(points)]
        indices = [1 + sum(each is point for each in drawn[:i]) for i, point in enumerate(drawn)]
        branches = await gather(*(_branch(rollout, *pair) for pair in zip(drawn, indices, strict=True)))
        for point, index, branch in zip(drawn, indices, branches, strict=True):
            for node, other in zip(point.node.nodes, branch.nodes, strict=True):
                node.candidates += other.candidates
            (step,) = branch.steps
            step.members = (index,) * len(branch.nodes)
            point.node.steps.append(step)


async def _branch(rollout: TaskRollout, point: BranchPoint, index: int) -> JointNode:
    """One more joint action at ``point``, number ``index`` there, played on to the end."""
    answers = await rollout.sample_all(point.env, 1, *point.path, index, after=point.after)
    branch = _joint_node(rollout, point.env, answers, await try_aligned(point.env, answers), point.path)
    await _play_on(rollout, branch, 0, (*point.path, index), point.team_return, point.after)
    return branch


async def _play_on(
    rollout: TaskRollout, node: JointNode, index: int, path: tuple[int, ...], team_return: float, after: Said
) -> list[BranchPoint]:
    """Play on from the joint action ``index`` of ``node``, the last of ``path``, to the end; the states on the way.

    ``team_return`` is what the team had earned before, ``after`` what was said.
    """
    points: list[BranchPoint] = []
    step = node.steps[index]
    total, after = team_return + step.transition.team_return, (*after, *said_in(node.nodes, step.members))

    async def ask(env: TeamEnv, agent: str) -> Answer:
        return await rollout.sample(env, agent, 1, *path, 0, after=after)

    async for each in play_on(step.transition.env, ask):
        step.next = _joint_node(rollout, each.env, each.said, [each.transition], path)
        points.append(BranchPoint(each.env, step.next, path, total, after))
        (step,) = step.next.steps
        path, total = (*path, 0), total + step.transition.team_return
        after = (*after, *said_with(each.said, 0))
    step.outcome = step.transition.outcome(total)
    return points


def _joint_node(
    rollout: TaskRollout,
    env: TeamEnv,
    answers: Mapping[str, Answer],
    transitions: Sequence[Transition],
    path: tuple[int, ...],
) -> JointNode:
    """The joint actions of ``answers`` in the state of ``env``, which led to ``transitions``; all of them go on."""
    results = [transition.result for transition in transitions]
    nodes = rollout.nodes(env, answers, results, [result.team for result in results])
    for node in nodes:
        node.path = path
        for candidate in node.candidates:
            candidate.continued = True
    steps = [
        JointStep((c,) * len(nodes), transition, transition.team_return, transition.team_return)
        for c, transition in enumerate(transitions)
    ]
    return JointNode(nodes, steps)
