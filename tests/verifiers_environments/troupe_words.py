"""An environment of verifiers with one agent, tools, and faults that a test asks for."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Iterator

import verifiers.v1 as vf

__all__ = ["WordsTaskset"]


class WordsData(vf.TaskData):
    word: str


class WordsTaskConfig(vf.TaskConfig):
    fault: str = ""
    tools: bool = False


class Dictionary(vf.Toolset[vf.ToolsetConfig, vf.State]):
    @vf.tool
    async def meaning(self, word: str) -> str:
        """What a word means."""
        if not word.isalpha():
            raise ValueError(f"{word!r} is no word")
        return f"{word} means {word[::-1]}"


class WordsTask(vf.Task[WordsData, vf.State, WordsTaskConfig]):
    @classmethod
    def toolsets(cls, config: WordsTaskConfig) -> list[vf.Toolset]:
        return [Dictionary(vf.ToolsetConfig())] if config.tools else []

    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        if self.config.fault == "setup":
            raise OSError("no room in setup")

    async def finalize(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        if self.config.fault == "finalize":
            raise KeyError("nothing to finalize")

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        return math.nan if self.config.fault == "metric nan" else float(len(trace.last_reply))

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        fault, right = self.config.fault, float(self.data.word in trace.last_reply)
        if fault == "raises":
            raise ZeroDivisionError("the rubric divides by 0")
        if fault == "exits":
            raise SystemExit(3)
        if fault == "hangs":
            await asyncio.sleep(600)
        values = {"nan": math.nan, "inf": math.inf, "large": 7.0, "negative": -1.0, "chance": random.random()}
        wrong = {"text": "good", "none": None, "list": [1.0], "empty": {}, "several": {"a": right, "b": 0.0}}
        return wrong.get(fault, values.get(fault, right))  # type: ignore[return-value]


class WordsConfig(vf.TasksetConfig):
    task: WordsTaskConfig = WordsTaskConfig()
    count: int = 30
    infinite: bool = False
    same: bool = False


class WordsTaskset(vf.Taskset[WordsTask, WordsConfig]):
    def load(self) -> Iterator[WordsTask]:
        if self.config.task.fault == "load":
            raise OSError("no data")
        for i in itertools.count() if self.config.infinite else range(self.config.count):
            word = "w" if self.config.same else f"w{i}"
            yield WordsTask(WordsData(prompt=f"Say {word}.", word=word), self.config.task)


if __name__ == "__main__":
    Dictionary.run()
