"""vLLM's executor of a tensor parallel model: a process for each shard, below that of the engine."""

from __future__ import annotations

from vllm.v1.executor.multiproc_executor import MultiprocExecutor

from .signals import follow_parent


class ParallelExecutor(MultiprocExecutor):
    """Ends with the learner, also where that one is killed; the processes of shards end with it (:mod:`.worker`)."""

    def _init_executor(self) -> None:
        follow_parent()
        super()._init_executor()
