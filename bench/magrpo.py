"""MAGRPO end to end against CoMLRL 1.4.3: rollout, rewards, returns, update, and new weights for the next rollout.

Both sides have the same base model, prompts, numbers of tokens, K joint actions per node, advantages without the
standard deviation, and one optimizer step per iteration and agent: CoMLRL's buffer holds all nodes of an iteration of
one turn, and with two turns it takes a step per turn.  CoMLRL evaluates nothing and logs nothing; ours is an iteration
of the training loop.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from lines import Lines, Runs, Setting, score
from transformers import AutoModelForCausalLM, AutoTokenizer

SETTINGS = {
    "long": Setting(algorithm="magrpo", prompt=1024, completion=128, k=8, tasks=2),
    "short": Setting(algorithm="magrpo", tasks=8),
    "turns": Setting(algorithm="magrpo", tasks=4, turns=2),
}


def comlrl(setting: Setting) -> tuple[Callable[[], object], list[int]]:
    """An epoch of CoMLRL's trainer over the tasks of ``setting``, and the lengths of the completions, as they come."""
    from comlrl.trainers.reinforce import MAGRPOConfig, MAGRPOTrainer
    from datasets import Dataset

    tokenizer = AutoTokenizer.from_pretrained(setting.folder)
    world = Lines(agents=setting.agents, prompt=setting.prompt, vocabulary=setting.vocabulary, horizon=setting.turns)
    tasks = world.tasks("train", setting.tasks, 0)
    nodes = sum(setting.k**turn for turn in range(setting.turns)) * setting.tasks

    def text(agent: str, words: str, turn: int) -> str:
        world.reset(next(task for task in tasks if task.data["words"] == words))
        world.turn = turn
        return tokenizer.apply_chat_template(world.observe(agent), tokenize=False, add_generation_prompt=True)

    def formatter(agent: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda item: text(agent, item["prompt"], 0)

    def transition(prompt: str, agent_completions: Sequence[str], **_: Any) -> list[str]:
        return [text(agent, prompt, 1) for agent in world.agents]

    def reward(*completions: Sequence[str]) -> list[float]:
        return [score(texts, setting.vocabulary) for texts in zip(*completions, strict=True)]

    trainer = MAGRPOTrainer(
        agents=[AutoModelForCausalLM.from_pretrained(setting.folder) for _ in world.agents],
        tokenizer=tokenizer,
        train_dataset=Dataset.from_list([{"prompt": task.data["words"]} for task in tasks]),
        reward_func=reward,
        formatters=[formatter(agent) for agent in world.agents],
        external_transition=transition,
        args=MAGRPOConfig(
            num_train_epochs=1,
            agent_devices="cpu",
            num_generations=setting.k,
            max_new_tokens=setting.completion,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            num_turns=setting.turns,
            early_termination_threshold=None,
            external_prompt_passthrough=True,
            eval_interval=0,
            rollout_buffer_size=nodes,
            advantage_normalization=False,
            agent_learning_rate=1e-6,
        ),
    )
    trainer.verbose = False
    lengths: list[int] = []
    generate = trainer._generate_completions

    def noted(*given: Any, **more: Any) -> dict[str, Any]:
        made = generate(*given, **more)
        assert made["prompt_input_ids"].shape[1] == setting.prompt, made["prompt_input_ids"].shape
        lengths.extend(len(tokens) for tokens in made["completion_input_ids"][0])
        return made

    trainer._generate_completions = noted
    return trainer.train, lengths


def time_pairs(name: str, pairs: int, clock: Callable[[], float]) -> list[float]:
    """CoMLRL's seconds over ours, of each pair; the order alternates."""
    setting, ratios = SETTINGS[name], []
    runs = Runs({"ours": setting}, clock)
    train, lengths = comlrl(setting)
    for pair in range(pairs + 1):
        seconds = {}
        for side in ("ours", "theirs")[:: 1 if pair % 2 else -1]:
            started = clock()
            if side == "theirs":
                lengths.clear()
                with contextlib.redirect_stdout(io.StringIO()):
                    train()
            else:
                row = runs.iterate("ours")
            seconds[side] = clock() - started
        assert sum(lengths) == row["rollout/tokens"], f"{sum(lengths)} tokens, ours {row['rollout/tokens']}"
        print(f"  {name}: ours {seconds['ours']:.3f} s, CoMLRL {seconds['theirs']:.3f} s", flush=True)
        if pair:  # the first warms up
            ratios.append(seconds["theirs"] / seconds["ours"])
    runs.close()
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--setting", choices=sorted(SETTINGS), action="append")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: on a machine shared with others")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[arguments.clock]
    for name in arguments.setting or SETTINGS:
        print(f"{name}: {statistics.median(time_pairs(name, arguments.pairs, clock)):.1f} times as fast as CoMLRL")


if __name__ == "__main__":
    main()
