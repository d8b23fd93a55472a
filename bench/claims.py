"""What a trained team can, and why: `python bench/claims.py RUN_DIR [RUN_DIR ...]`.

On each run's held-out test tasks, sampled at temperature 1 where nothing else is said: the base model at several
temperatures, the trained team, the team with the tool agent silenced, the tool agent's proposals executed without the
planner, and the two policies swapped.  One Markdown table a run, with 95 % Wilson intervals.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from troupe.evaluation import Echo, PolicySpeaker, Silence, Speaker, evaluate, summarise
from troupe.experience import Sampling
from troupe.models.laptop import load_model, load_tokenizer
from troupe.rollout.torch_engine import TorchEngine
from troupe.rollout.voice import Voice

COLUMNS = ("success", "turns", "tool/reward", "tool/malformed", "tool/blocked", "plan/malformed", "plan/blocked")


async def measure(run: Path, tasks: int, checkpoint: str, threads: int) -> list[tuple[str, dict[str, Any]]]:
    """Every condition with its summary."""
    torch.set_num_threads(threads)
    config: Any = OmegaConf.to_container(OmegaConf.load(run / "config.yaml"))
    world = instantiate(config["env"])
    team = config["team"]
    base = config["policies"][team["plan"]]["base"]
    models = {name: load_model(str(run / "checkpoints" / checkpoint / name)).eval() for name in config["policies"]}
    tokenizer = load_tokenizer(base)
    engine = TorchEngine(models | {"base": load_model(base).eval()}, tokenizer, max_batch_rows=1024)
    context = models[team["plan"]].config.max_position_embeddings
    sampling = Sampling(max_tokens=config["policies"][team["plan"]]["sampling"]["eval"]["max_tokens"])
    held_out = world.tasks("test", tasks, 0)

    def voice(policy: str, temperature: float = 1.0) -> PolicySpeaker:
        return PolicySpeaker(Voice(policy, engine, tokenizer, context, replace(sampling, temperature=temperature)))

    tool, plan = voice(team["tool"]), voice(team["plan"])
    conditions: dict[str, dict[str, Speaker]] = {
        **{
            f"base, temperature {t}" if t else "base, greedy": {"tool": voice("base", t), "plan": voice("base", t)}
            for t in (1.0, 0.0, 0.3, 0.5, 0.7)
        },
        "trained": {"tool": tool, "plan": plan},
        "trained, greedy": {"tool": voice(team["tool"], 0.0), "plan": voice(team["plan"], 0.0)},
        "trained, tool agent silenced": {"tool": Silence(), "plan": plan},
        "trained, proposals executed without the planner": {"tool": tool, "plan": Echo("tool")},
        "trained, policies swapped": {"tool": plan, "plan": tool},
    }
    rows = [(name, summarise(await evaluate(world, held_out, who, 12345))) for name, who in conditions.items()]
    await engine.close()
    return rows


def table(rows: list[tuple[str, dict[str, Any]]]) -> str:
    """Markdown."""
    lines = ["| condition | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, row in rows:
        low, high = row["success_ci95"]
        cells = [f"{row['success']:.3f} ({low:.3f}-{high:.3f})"]
        cells += [f"{row[c]:.3f}" if c in row else "" for c in COLUMNS[1:]]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--checkpoint", default="last")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    for run in options.runs:
        rows = asyncio.run(measure(run, options.tasks, options.checkpoint, options.threads))
        print(f"\n{run} ({options.tasks} test tasks)\n\n{table(rows)}", flush=True)


if __name__ == "__main__":
    main()
