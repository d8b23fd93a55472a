"""GRPO-MA: several answers per thought, both judged by outcomes (arXiv 2509.24494)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from statistics import fmean

from ...experience import Candidate, Episode
from .base import Share
from .tree_grpo import TreeGrpo, candidates_of, leaves


class GrpoMa(TreeGrpo):
    """A tree's first messages are its thought, each way on to an end is an answer to it.

    The value of a thought is the mean outcome of its answers; its advantage is that value compared with those of the
    task's K thoughts.  The advantage of an answer, which each of its messages gets, is its outcome compared with those
    of all answers of the task.  Both are as in GRPO.

    A tree that ends with its first messages is a thought without answers.  Where an answer branches once more
    (``algorithm.sampler.branch_at=drawn``), a message gets the mean over the leaves below it.  The outcome is the
    team's ``success``, 0 or 1, or its ``team_return``; rewards of single messages are not read.
    """

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        task = episode.task.task_id
        trees: dict[int, list[float]] = {}
        thoughts: dict[int, list[Candidate]] = {}
        for tree, (first, *rest), outcome in leaves(episode):
            value = float(outcome.success if self.value == "success" else outcome.team_return)
            trees.setdefault(tree, []).append(value)
            thoughts[tree] = candidates_of(episode, [first])
            if rest:
                yield (task, "answers"), Share(value, candidates_of(episode, rest))
        for tree, values in trees.items():
            # A message's sum over the leaves below it is divided by their number: a thought has its value from each.
            yield (task, "thoughts"), Share(fmean(values), thoughts[tree], weight=len(values))
