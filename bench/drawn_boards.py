"""Does a language model read a drawn board?  ``python bench/drawn_boards.py [--base smollm2_q4] [--size 4]``.

Each prompt has the rules of Plan-Path, worked examples as a conversation, and a board whose goal is at most three moves
away; the model answers with all of its moves at once.  Its messages are then carried out on their own boards, and the
same messages on the other boards: if that succeeds as often, the model does not read the board.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from statistics import fmean

import torch
from transformers.utils import logging

from troupe.envs.grid.board import draw_board, neighbours, shortest_path
from troupe.envs.grid.plan_path import PlanPath
from troupe.evaluation.statistics import bootstrap_interval, pass_at_k
from troupe.experience import Request, Sampling, Task
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine

WORDS = {"U": "up", "D": "down", "L": "left", "R": "right"}
RULES = (
    "You walk over a board to G. @ is you, # is a wall, . is free. "
    f"Answer with the moves from @ to G, of {', '.join(WORDS.values())}, one word each."
)


def drawn(task: Task, size: int) -> str:
    """The board, a row a line, its signs apart so that each is a token."""
    data = task.data
    signs = "".join(draw_board(size, data["walls"], data["start"], frozenset(), frozenset([data["goal"]])))
    shown = ["G" if sign == "." else "." if sign == " " else sign for sign in signs]
    return "\n".join(" ".join(shown[row * size : (row + 1) * size]) for row in range(size))


def solution(task: Task, size: int) -> str:
    """A shortest way, in words."""
    way = shortest_path(size, task.data["walls"], task.data["start"], [task.data["goal"]])
    return " ".join(WORDS[move] for move in way or [])


def conversation(task: Task, examples: Sequence[Task], size: int) -> list[dict[str, str]]:
    """The prompt of ``task``."""
    messages = [{"role": "system", "content": RULES}]
    for example in examples:
        messages.append({"role": "user", "content": drawn(example, size)})
        messages.append({"role": "assistant", "content": solution(example, size)})
    return [*messages, {"role": "user", "content": drawn(task, size)}]


def reaches(task: Task, size: int, text: str) -> bool:
    """Whether the moves of ``text``, up to the first that is none or is blocked, pass over the goal."""
    moves = {word: move for move, word in WORDS.items()}
    at = task.data["start"]
    for word in text.lower().replace(",", " ").replace(".", " ").split():
        to = neighbours(size)[at].get(moves.get(word, ""))
        if to is None or to in task.data["walls"]:
            return False
        at = to
        if at == task.data["goal"]:
            return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="smollm2_q4")
    parser.add_argument("--size", type=int, default=4)
    parser.add_argument("--examples", type=int, default=1)
    parser.add_argument("--boards", type=int, default=48)
    parser.add_argument("--samples", type=int, default=8)
    given = parser.parse_args()
    if given.boards < 2:
        parser.error("--boards: at least 2, since the messages are carried out on the other boards, too")
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    world = PlanPath(size=given.size, walls=0.2, min_distance=1, max_distance=3, team="solo")
    tasks, examples = world.tasks("test", given.boards, 0), world.tasks("train", given.examples, 0)
    tokenizer = load_tokenizer(given.base)
    engine = TorchEngine({"p": load_model(given.base)}, tokenizer)
    sampling = Sampling(temperature=1.0, max_tokens=8)

    async def answers() -> list[list[str]]:
        async def of(place: int, task: Task) -> list[str]:
            messages = conversation(task, examples, given.size)
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            completions = await engine.generate(Request("p", tuple(ids), given.samples, sampling, seed=place))
            return [completion.text for completion in completions]

        return await asyncio.gather(*(of(place, task) for place, task in enumerate(tasks)))

    texts = asyncio.run(answers())
    moves = [bool(words := text.lower().split()) and {*words} <= {*WORDS.values()} for each in texts for text in each]
    own = [[reaches(task, given.size, text) for text in each] for task, each in zip(tasks, texts, strict=True)]
    others = [
        fmean(reaches(task, given.size, text) for at, each in enumerate(texts) if at != place for text in each)
        for place, task in enumerate(tasks)
    ]
    print(conversation(tasks[0], examples, given.size)[-1]["content"], "->", texts[0])
    print(f"messages of moves alone: {fmean(moves):.3f}")
    for name, shares in (("on their own boards", [fmean(each) for each in own]), ("on the other boards", others)):
        low, high = bootstrap_interval(shares)
        print(f"{name}: {fmean(shares):.3f} ({low:.3f} to {high:.3f})")
    n = given.samples
    print(f"pass@{n}: {fmean(pass_at_k(n, sum(each), n) for each in own):.3f}")


if __name__ == "__main__":
    main()
