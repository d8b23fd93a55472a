"""From a model in memory to a running vLLM: its folder, its environment and its arguments."""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..base import EngineError, UnsupportedModelError
from . import placement
from .interrupts import interruptible
from .placement import Placement, check_adapters, place
from .senders import BACKENDS

SHARED_MEMORY = Path("/dev/shm")
EXTENSION = "troupe.rollout.engines.vllm.worker.WorkerExtension"
EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""One process for engine and model.  By the name of its class: 0.22.1 makes two of ``uni`` on a CPU."""
SCHEDULERS = "troupe.rollout.engines.vllm.scheduler."
GIB = 1 << 30
LONGEST = 107 - len("/") - 36
"""Bytes in the path of an engine's folder: Linux allows a socket 107, and vLLM names it by a UUID."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class VllmSettings:
    """How an engine runs.

    ``dtype`` of weights, activations and cache.  ``kv_cache_gib`` for keys and values.  ``block_size`` tokens are the
    unit of the cache and of what prompts can share.  ``max_batch_rows`` completions decode together.  ``threads`` of
    the engine's process, on a CPU.  A process that ends, or that owes an answer and shows no progress for ``stall_s``
    seconds, is started anew, up to ``restarts`` times a run.

    On a GPU: ``device`` and ``transfer`` (see :func:`.placement.place`); ``sleep`` is vLLM's level while the learner
    updates (0: not; 1: weights wait in the host's memory; 2: they are discarded, and all are sent anew); ``eager``
    leaves out compilation and CUDA graphs.  On a CPU the last two change nothing.
    """

    dtype: str
    kv_cache_gib: float
    block_size: int
    max_batch_rows: int
    threads: int
    stall_s: float
    restarts: int
    device: str = "auto"
    transfer: str = "auto"
    sleep: int = 0
    eager: bool = True

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"engine.dtype must be one of {', '.join(DTYPES)}, got {self.dtype!r}")
        for name, most in (("kv_cache_gib", sys.float_info.max), ("stall_s", math.inf)):
            if not (_number(value := getattr(self, name)) and 0 < value <= most):
                raise ValueError(f"engine.{name} must be above 0, got {value!r}")
        for name, least in (("block_size", 1), ("max_batch_rows", 1), ("threads", 1), ("restarts", 0)):
            value = getattr(self, name)
            if not (_number(value) and isinstance(value, int) and value >= least):
                raise ValueError(f"engine.{name} must be a whole number of at least {least}, got {value!r}")
        if self.sleep not in (0, 1, 2):
            raise ValueError(f"engine.sleep must be 0, 1 or 2, got {self.sleep!r}")
        if not isinstance(self.eager, bool):
            raise ValueError(f"engine.eager must be true or false, got {self.eager!r}")
        placement.check(self.device, self.transfer)

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]


def _number(value: object) -> bool:
    """A configuration can hold anything."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_proof(canary_nats: float, lora: str) -> None:
    """Raise ``ValueError``, naming the key, for values of them that no engine takes."""
    if not (_number(canary_nats) and canary_nats > 0):
        raise ValueError(f"engine.canary_nats must be above 0, got {canary_nats!r}")
    if lora not in ("adapter", "merged"):
        raise ValueError(f"engine.lora must be adapter or merged, got {lora!r}")


@dataclass(frozen=True)
class LoraRoom:
    """For adapters beside the model: ``slots`` of at most ``rank``, on layers called one of ``targets``."""

    slots: int
    rank: int
    targets: tuple[str, ...]


def check_cache(policy: str, config: PretrainedConfig, settings: VllmSettings, width: int | None = None) -> None:
    """Raise ``ValueError``, saying how much is needed, where the cache cannot hold one sequence of full length, with
    heads of ``width`` (None: as they are).
    """
    blocks = -(-config.max_position_embeddings // settings.block_size) + 1  # vLLM keeps one to itself
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    numbers = 2 * config.num_hidden_layers * heads * (width or head_width(config))  # keys and values of one token
    needed = blocks * settings.block_size * numbers * settings.torch_dtype.itemsize
    if needed > settings.kv_cache_gib * GIB:
        raise ValueError(
            f"engine.kv_cache_gib={settings.kv_cache_gib:g} is too little for policy '{policy}': one sequence of "
            f"{config.max_position_embeddings} tokens, its context, needs {needed / GIB:.3g} GiB"
        )


def head_width(config: PretrainedConfig) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _check_heads(policy: str, config: PretrainedConfig, settings: VllmSettings) -> None:
    """vLLM looks at the width of heads on a GPU alone; on a CPU its process would end at the first token."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from .heads import room

    width = room(head_width(config))
    if width is None:
        raise UnsupportedModelError(f"policy '{policy}': vLLM on a CPU has no room for heads of {head_width(config)}")
    check_cache(policy, config, settings, width)


def folder() -> tempfile.TemporaryDirectory[str]:
    """In shared memory, where there is such a thing; else on disk.

    It is to be an engine's temporary folder too, and so leads on to where torch keeps what it has compiled, which the
    next engine needs again.  Raises :class:`..base.EngineError` where its path is too long for vLLM's sockets.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    compiled = Path(default_cache_dir())
    compiled.mkdir(parents=True, exist_ok=True)
    found = tempfile.TemporaryDirectory(
        prefix="troupe-vllm-", dir=SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    )
    if len(os.fsencode(found.name)) > LONGEST:
        found.cleanup()
        raise EngineError(
            f"{found.name}: a socket's path allows a folder of {LONGEST} bytes; let TMPDIR name a shorter one"
        )
    (Path(found.name) / compiled.name).symlink_to(compiled)
    return found


def check_room(policy: str, weights: Mapping[str, Tensor], path: Path) -> None:
    """Raise :class:`..base.EngineError`, saying how much is needed, where ``path`` has no room for ``weights``."""
    once = {tensor.data_ptr(): tensor.nbytes for tensor in weights.values()}
    needed, free = sum(once.values()), shutil.disk_usage(path).free
    if needed > free:
        raise EngineError(
            f"policy '{policy}': its weights go to vLLM's process by way of {path.parent}, which has {free / GIB:.3g} "
            f"GiB left and would need {needed / GIB:.3g}; a container is given more with --shm-size"
        )


def placed(settings: VllmSettings, learner: torch.device, room: LoraRoom | None) -> Placement:
    """Where vLLM, as it is installed, runs for a learner whose weights lie on ``learner``.

    Raises ``ValueError`` naming the key; see :mod:`.placement`.
    """
    with environment(settings):
        from vllm.platforms import current_platform

        from .compat import NEW

        gpus = torch.cuda.device_count() if current_platform.is_cuda() else 0
    alone = not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)
    where = place(settings.device, settings.transfer, learner=learner, gpus=gpus, alone=alone)
    if where.gpu is not None and room is not None:
        check_adapters(settings.dtype, settings.sleep, anew=NEW)
    return where


def start(
    policy: str,
    model: PreTrainedModel,
    weights: Mapping[str, Tensor],
    tokenizer: PreTrainedTokenizerBase,
    settings: VllmSettings,
    where: Placement,
    room: LoraRoom | None,
    path: Path,
) -> Any:
    """A running ``AsyncLLM`` of ``model``'s kind with ``weights``, by way of files in ``path``, which its process still
    reads.

    Raises :class:`.support.UnsupportedModelError`, naming the policy, for a model that vLLM refuses, and
    :class:`..base.EngineError` where its process does not start, or ``path`` has no room.
    """
    # Before the environment is the process's: torch counts GPUs once, by what it sees then.
    memory = _memory(settings, where, sum(weights[name].numel() for name in weights))
    with environment(settings, where, path):
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        from .transfer import register

        _check_heads(policy, model.config, settings)
        register()
        given = dict(weights)
        check_room(policy, given, path)
        model.save_pretrained(path, state_dict=given)
        tokenizer.save_pretrained(path)
        always = _always(settings, model.config.max_position_embeddings, where)
        arguments = AsyncEngineArgs(model=str(path), **always, **memory, **_adapters(room))
        try:
            config = arguments.create_engine_config()
        except ValueError as error:  # vLLM's validation, in whose middle the reason stands
            raise UnsupportedModelError(
                f"policy '{policy}': vLLM does not run {type(model).__name__}: {error}"
            ) from error
        try:
            with interruptible():
                engine = AsyncLLM.from_vllm_config(config, disable_log_stats=True)
        except RuntimeError as error:
            raise EngineError(
                f"policy '{policy}': vLLM's process did not start; it says why above, on stderr: {error}"
            ) from error
    return engine


def _always(settings: VllmSettings, context: int, where: Placement) -> dict[str, Any]:
    """vLLM's arguments for sequences of at most ``context`` tokens, but for :func:`_memory` and :func:`_adapters`.

    Called within :func:`environment`, since it imports vLLM.
    """
    from vllm.config import WeightTransferConfig
    from vllm.platforms import current_platform

    return {
        "dtype": settings.dtype,
        "max_model_len": context,
        "max_num_seqs": settings.max_batch_rows,
        "max_num_batched_tokens": max(8192, settings.max_batch_rows),
        "kv_cache_memory_bytes": int(settings.kv_cache_gib * GIB),
        "block_size": settings.block_size,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "weight_transfer_config": WeightTransferConfig(backend=BACKENDS[where.transfer]),
        "worker_extension_cls": EXTENSION,
        "distributed_executor_backend": EXECUTOR,
        "use_tqdm_on_load": False,
        "disable_log_stats": True,
        "scheduler_cls": SCHEDULERS + ("WholeScheduler" if current_platform.is_cpu() else "AheadScheduler"),
    }


def _memory(settings: VllmSettings, where: Placement, numbers: int) -> dict[str, Any]:
    """vLLM's arguments that differ between a CPU and a GPU, which a learner may use as well.

    Where the cache's size is given, ``gpu_memory_utilization`` is only the share that must be free at the start.
    """
    if where.gpu is None:
        return {"enforce_eager": True}
    needed = settings.torch_dtype.itemsize * numbers + settings.kv_cache_gib * GIB
    share = needed / torch.cuda.get_device_properties(where.gpu).total_memory
    sleeps = settings.sleep > 0
    return {"enforce_eager": settings.eager, "enable_sleep_mode": sleeps, "gpu_memory_utilization": min(1.0, share)}


def _adapters(room: LoraRoom | None) -> dict[str, Any]:
    """vLLM's arguments for them."""
    if room is None:
        return {}
    return {
        "enable_lora": True,
        "max_loras": room.slots,
        "max_cpu_loras": room.slots,
        "max_lora_rank": room.rank,
        "lora_target_modules": list(room.targets),
    }


@contextmanager
def environment(settings: VllmSettings, where: Placement | None = None, path: Path | None = None) -> Iterator[None]:
    """What the engine's process inherits; what was set by the user holds, but for threads, ``where`` it runs and
    ``path``, the folder of all its temporary files and sockets, which a process that is killed leaves behind.
    """
    wanted = {
        "VLLM_NO_USAGE_STATS": os.environ.get("VLLM_NO_USAGE_STATS", "1"),
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
        # One process for engine and model: vLLM's way to bind threads to cores would put all engines on the same ones.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "OMP_NUM_THREADS": str(settings.threads),
    }
    if where is not None and where.gpu is not None:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        wanted["CUDA_VISIBLE_DEVICES"] = seen.split(",")[where.gpu] if seen else str(where.gpu)
    if where is not None and where.transfer == "ipc":
        # vLLM reads handles of GPU memory as pickles; they come from the learner's process alone.
        wanted["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    if path is not None:
        tempfile.gettempdir()  # is looked up once: this process keeps its own
        wanted |= {"TMPDIR": str(path), "VLLM_RPC_BASE_PATH": str(path)}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ |= wanted
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
