"""AT-GRPO with coarser groups: the ablation of agent- and turn-wise grouping (arXiv 2510.11062)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ...experience import Node, Weighting
from .base import Baseline, GroupRelative


class TreeGroups(GroupRelative):
    """Group-relative advantages over a task's tree, grouped by some of ``agent`` and ``turn``.

    ``by=[agent]``: an agent's candidates of all turns are one group; ``by=[turn]``: a turn's candidates of all agents;
    ``by=[]``: flat, all candidates of the team.  ``by=[agent, turn]`` is AT-GRPO.  Coarser groups compare answers to
    different prompts: their baseline depends on how hard the prompts were.
    """

    topologies = ("tree",)

    def __init__(
        self,
        *,
        by: Sequence[str],
        baseline: Baseline = "mean",
        normalise: bool = True,
        std_floor: float = 1e-6,
        weight: Weighting = "message",
    ) -> None:
        super().__init__(baseline=baseline, normalise=normalise, std_floor=std_floor, weight=weight)
        if unknown := [name for name in by if name not in ("agent", "turn")]:
            raise ValueError(f"algorithm.credit.by may hold agent and turn, got {', '.join(map(str, unknown))}")
        self.by = tuple(by)
        self.one_prompt_per_group = set(by) == {"agent", "turn"}

    def key(self, node: Node) -> Hashable:
        return (node.task_id, *(getattr(node, name) for name in self.by))
