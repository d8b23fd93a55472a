"""Write the table of ``strategies.md``: which topology trains with which regime and strategy, and what is refused why.

``make docs`` writes it, between two marks; ``tests/test_documentation.py`` checks that it was
written.  What is refused is what :func:`troupe.setup.checks.check` refuses, which training asks too; what is called
tested must be trained by ``tests/test_topologies.py``, which has its cases from here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_module
from marked_section import with_section
from omegaconf import DictConfig

from troupe.setup.checks import checked
from troupe.setup.composition import choices

PAGE = Path(__file__).parent.parent / "strategies.md"
BEGIN, END = "<!-- written by `make docs`: begin -->\n", "<!-- end -->\n"
TOPOLOGIES = {
    "tree": ["algorithm=at_grpo"],
    "chain": ["algorithm=mas_grpo"],
    "joint": ["algorithm=magrpo", "env.horizon=1"],
    "replay": ["algorithm=c3"],
    "forest": ["algorithm=tree_grpo", "algorithm.credit.value=team_return", "algorithm.sampler.k=4", "env.horizon=2"],
}
"""By topology, an algorithm that has it, and what keeps its episodes small or lets them differ."""
TURNS = {"specialized": 2, "shared": 1, "lora": 1, "single": 2}
"""By regime, how many turns are tested."""
TESTED = {
    "single_device": ["strategy=single_device"],
    "ddp": ["strategy=ddp", "strategy.accelerator=cpu", "strategy.devices=2"],
    "fsdp2": ["strategy=fsdp2", "strategy.accelerator=cpu", "strategy.devices=2"],
    "deepspeed_zero2": ["strategy=deepspeed_zero2", "strategy.accelerator=cpu", "strategy.devices=2"],
    "deepspeed_zero3": ["strategy=deepspeed_zero3", "strategy.accelerator=cpu", "strategy.devices=2"],
}
"""By strategy, how it is tested."""
WITH_DEEPSPEED = ("tree-specialized", "chain-shared", "replay-lora", "forest-single")
"""Tested with DeepSpeed: each regime, on which depends what a strategy has to do, and each topology but one."""
SMALL = [
    "experiment=sokoban_specialized",
    "loop.tasks_per_iteration=3",  # an odd number: the shares of two processes differ
    "loop.validation_tasks=1",
    "loop.test_tasks=1",
    "algorithm.sampler.k=2",
]


def overrides(topology: str, regime: str) -> list[str]:
    """A small run of ``topology`` and ``regime``."""
    return [*SMALL, f"env.horizon={TURNS[regime]}", *TOPOLOGIES[topology], f"regime={regime}"]


def refusal(cfg: DictConfig) -> str | None:
    """Why training refuses ``cfg`` on every machine; None where it does not."""
    try:
        checked(cfg)
    except ValueError as error:
        return str(error)
    return None


def section() -> str:
    """The table.  Raises ``ValueError`` for what is neither refused nor tested."""
    strategies = choices("strategy")
    reasons: list[str] = []
    lines = ["| topology | regime | " + " | ".join(f"`{name}`" for name in strategies) + " |"]
    lines.append("| --- " * (2 + len(strategies)) + "|")
    with initialize_config_module("troupe.configs", version_base="1.3"):
        nodes: dict[str, Any] = {name: compose("train", overrides=[f"strategy={name}"]).strategy for name in strategies}
        for topology in TOPOLOGIES:
            for regime in TURNS:
                words = [*overrides(topology, regime), "name=table", "run_dir=nowhere"]
                cfg = compose("train", overrides=words)
                cells = []
                for name, node in nodes.items():
                    cfg.strategy = node
                    cells.append(_cell(f"{topology}-{regime}", name, refusal(cfg), reasons))
                lines.append(f"| {topology} | {regime} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"{number}. {reason}" for number, reason in enumerate(reasons, 1))]) + "\n"


def _cell(case: str, strategy: str, refused: str | None, reasons: list[str]) -> str:
    if refused is None:
        if strategy not in TESTED:
            raise ValueError(
                f"{case} with {strategy} is neither refused nor tested: add it to tests/test_topologies.py"
            )
        untested = strategy.startswith("deepspeed") and case not in WITH_DEEPSPEED
        return "trains" if untested else "trains (tested)"
    if refused not in reasons:
        reasons.append(refused)
    return f"refused: {reasons.index(refused) + 1}"


def page() -> str:
    """The page's text, with the table anew."""
    return with_section(PAGE.read_text(encoding="utf-8"), BEGIN, END, section())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
