"""What Qwen2.5-Coder makes of prompts for the two agents of code collaboration.

python bench/coder_prompts.py HumanEval.jsonl [--problems 12] [--k 8] [--only WORDING ...]

Of the first training problems, K messages per agent and problem with each of WORDINGS.  A table: the share of `aux`'s
messages that define `aux`, that take arguments, and that repeat the problem's function; of `main`'s that define it and
that call `aux`; and of the pairs, message by message, success, pass@K, the mean return (4 at most) and live groups,
those whose K returns differ.  Temperature 0.7, as in training.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from hydra import initialize_config_module

from troupe.envs.code_collab.functions import read_function
from troupe.experience import Message, Sampling
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.chat_template import PREFILL
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.setup.evaluation import untrained_team
from troupe.setup.instantiation import build_world

Wording = Callable[[str, str, str], list[Message]]
"""(Agent, problem, the problem's function) -> messages."""
BARE = "Answer with Python code alone: no explanation, no Markdown, no tests, no example, no text before or after it."


def system(agent: str, problem: str, entry: str) -> list[Message]:
    """The role in the system message, a form with a placeholder."""
    role = {
        "aux": "You write a helper function for a coding problem. Your partner writes the function that solves it, at "
        "the same time, and may call yours.",
        "main": "You solve a coding problem by writing the function that it asks for. Your partner writes a helper "
        "function aux(...) for it at the same time. You may call it and use its value; do not define it yourself.",
    }[agent]
    line = "def aux(...):" if agent == "aux" else f"def {entry}(...):"
    form = f"{line}\n    # your code\n    return result"
    user = f"Problem:\n{problem}\n\n{BARE} It has this form:\n\n{form}"
    return [{"role": "system", "content": role}, {"role": "user", "content": user}]


def user(agent: str, problem: str, entry: str) -> list[Message]:
    """All in the user's message, after the problem, without a form."""
    task = {
        "aux": f"Your partner solves this problem by writing the function `{entry}`. Write a helper function for it, "
        f"which does a part of the work. It must be called `aux`, not `{entry}`; it takes arguments and returns a "
        "value.",
        "main": f"Write the function `{entry}`. Your partner writes a helper function `aux` for it at the same time, "
        f"which does a part of the work. Call `aux(...)` in `{entry}` and use its value; do not define it.",
    }[agent]
    return [{"role": "user", "content": f"Problem:\n{problem}\n\nYour task:\n{task}\n{BARE}"}]


def first(agent: str, problem: str, entry: str) -> list[Message]:
    """All in the user's message, before the problem."""
    (message,) = user(agent, problem, entry)
    problem, _, task = message["content"].partition("\n\nYour task:\n")
    return [{"role": "user", "content": f"{task}\n\n{problem}"}]


WORDINGS: dict[str, tuple[Wording, dict[str, str]]] = {
    "role in the system message": (system, {}),
    "all in the user's message": (user, {}),
    "all in the user's message, the problem last": (first, {}),
    "the user's message, prefilled": (user, {"aux": "def aux(", "main": "def {entry}("}),
    "the user's message, aux prefilled": (user, {"aux": "def aux("}),
}
"""Name -> messages, and by agent the words that its answer begins with."""


async def measure(world: Any, client: PolicyClient, name: str, problems: int, k: int) -> list[str]:
    wording, begins = WORDINGS[name]
    tasks = world.tasks("train", problems, 0)

    async def texts(place: int, agent: str) -> list[str]:
        problem = tasks[place].data["problem"]
        own = client
        if begin := begins.get(agent, ""):
            begin = begin.format(entry=problem.function)
            own = PolicyClient(
                client.policy, client.engine, client.tokenizer, client.context, client.sampling, {PREFILL: begin}
            )
        prompt = own.chat_prompt(agent, problem.name, wording(agent, problem.statement.strip(), problem.function))
        return [each.text for each in await own.generate(prompt.ids, k, place, (place, agent))]

    said = await asyncio.gather(*(texts(place, agent) for place in range(len(tasks)) for agent in ("aux", "main")))
    aux, main = said[::2], said[1::2]
    infos: list[list[dict[str, float]]] = []
    for task, *both in zip(tasks, aux, main, strict=True):
        infos.append([])
        for one, other in zip(*both, strict=True):
            env = world.fork()
            env.reset(task)
            step = await env.step({"aux": one, "main": other})
            infos[-1].append(step.info | {"success": step.success})
    entries = [task.data["problem"].function for task in tasks]
    helpers = [read_function(text, "aux") for group in aux for text in group]
    repeats = [bool(read_function(text, entry)) for group, entry in zip(aux, entries, strict=True) for text in group]
    mains = [bool(read_function(text, entry)) for group, entry in zip(main, entries, strict=True) for text in group]
    flat = [info for group in infos for info in group]
    shares = [
        *(fmean(map(bool, helpers)), fmean(map(takes_arguments, helpers)), fmean(repeats), fmean(mains)),
        fmean(info["calls_aux"] for info in flat),
        fmean(info["success"] for info in flat),
        fmean(any(info["success"] for info in group) for group in infos),
        fmean(info["points"] for info in flat),
        fmean(len({info["points"] for info in group}) > 1 for group in infos),
    ]
    for task, group in zip(tasks[:2], aux, strict=False):
        print(f"--- {task.data['problem'].name}, aux with {name}:\n{group[0]}")
    return [name, *(f"{share:.2f}" for share in shares)]


def takes_arguments(source: str) -> bool:
    try:
        (node,) = ast.parse(source).body
    except (SyntaxError, ValueError):
        return False
    return isinstance(node, ast.FunctionDef) and bool(node.args.args or node.args.vararg)


async def run(world: Any, client: PolicyClient, names: Sequence[str], problems: int, k: int) -> None:
    await world.open()
    rows = []
    try:
        for name in names:
            started = time.perf_counter()
            rows.append(await measure(world, client, name, problems, k))
            print(f"{rows[-1]}, {time.perf_counter() - started:.0f} s", flush=True)
    finally:
        await world.close()
    head = ("prompts", "aux defined", "with arguments", "repeats the problem's", "main defined", "calls aux")
    head += ("success", f"pass@{k}", "return of 4", "live groups")
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--base", default="coder_q4")
    parser.add_argument("--problems", type=int, default=12)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--only", nargs="+", choices=list(WORDINGS), default=list(WORDINGS))
    options = parser.parse_args()
    words = ["scale=coder"]
    for part in ("train", "test"):
        words += [f"env.data.{part}.path={options.data.resolve()}"]
    with initialize_config_module("troupe.configs", version_base="1.3"):
        world = build_world("env", untrained_team("experiment=code_collab_lora", words).config["env"])
    tokenizer, model = load_tokenizer(options.base), load_model(options.base).to(torch.float32)
    engine = TorchEngine({"coder": model}, tokenizer, max_batch_rows=64, lockstep=True)
    sampling = Sampling(temperature=0.7, max_tokens=options.tokens)
    client = PolicyClient("coder", engine, tokenizer, model.config.max_position_embeddings, sampling)
    asyncio.run(run(world, client, options.only, options.problems, options.k))


if __name__ == "__main__":
    main()
