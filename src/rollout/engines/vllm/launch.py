"""From weights in memory to a running vLLM: the folder, the environment and the arguments of its process."""

from __future__ import annotations

import copy
import fcntl
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from weakref import finalize

import torch
import torch.distributed as dist
from torch._inductor.runtime.cache_dir_utils import default_cache_dir
from transformers import PreTrainedTokenizerBase

from ..base import EngineError, UnsupportedModelError
from .expected import ExpectedWeights
from .placement import Placement, check_adapters, place
from .settings import GIB, VllmSettings
from .signals import interruptible
from .transfer import check_disk_space
from .versions import is_0_22

SHARED_MEMORY = Path("/dev/shm")
EXTENSION = "troupe.rollout.engines.vllm.worker.WorkerExtension"
EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""One process for engine and model.  By the name of its class: 0.22.1 makes two of ``uni`` on a CPU."""
PARALLEL_EXECUTOR = "troupe.rollout.engines.vllm.executor.ParallelExecutor"
"""A process for the engine, and one for each shard of the model."""
FOLDER_BYTES = 107 - len("/") - 36
"""Of the path of an engine's folder, at most: Linux allows a socket 107, and vLLM names it by a UUID."""


class Folder(AbstractContextManager["Folder"]):
    """A folder of this user's for one engine, in shared memory, where there is such a thing; else on disk.

    It has the first name that no running engine has: vLLM looks up what it has compiled by the model's path, too, and
    what a killed process has left is taken away.  Raises :class:`..base.EngineError` where its path is too long for
    vLLM's sockets, and ``OSError`` where there is no room.
    """

    def __init__(self) -> None:
        parent = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
        names = (parent / f"troupe-vllm-{os.getuid()}-{number}" for number in itertools.count())
        self.path, lock = next((path, lock) for path in names if (lock := _taken(path)) is not None)
        self.cleanup = finalize(self, _remove, self.path, lock)  # once, at the latest when the interpreter ends

    def __exit__(self, *_: object) -> None:
        self.cleanup()


def _taken(path: Path) -> int | None:
    """The lock on ``path``, now an empty folder; None where it is another engine's or user's, or no folder."""
    if len(os.fsencode(path)) > FOLDER_BYTES:
        raise EngineError(
            f"{path}: a socket's path allows a folder of {FOLDER_BYTES} bytes; let TMPDIR name a shorter one"
        )
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except (FileExistsError, NotADirectoryError, PermissionError):
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        own = os.fstat(lock)
        if own.st_uid == os.getuid() and os.path.samestat(path.lstat(), own):
            for each in path.iterdir():
                _delete(each)
            return lock
    except (BlockingIOError, FileNotFoundError):  # another engine has it, or has just removed it
        pass
    os.close(lock)
    return None


def _remove(path: Path, lock: int) -> None:
    _delete(path)
    os.close(lock)


def _delete(path: Path) -> None:
    """Also while a process that ends deletes its own files in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def unlink_shared(folder: Path) -> None:
    """Take the names from the memory that a tensor parallel model's processes share on a CPU, and would leave where
    they are killed.  They begin with that of the file in the engine's ``folder`` by which the processes have met.
    """
    for file in folder.glob("vllm_dist_*"):
        for path in SHARED_MEMORY.glob(f"{file.name}-*"):
            path.unlink(missing_ok=True)


def find_placement(expected: ExpectedWeights, replica: int) -> Placement:
    """Where vLLM, as it is installed, runs for the learner.  Raises ``ValueError`` naming the key."""
    settings = expected.settings
    with environment(settings):
        from vllm.platforms import current_platform

        gpus = torch.cuda.device_count() if current_platform.is_cuda() else None
    alone = not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)
    placement = place(settings, learner=expected.device, gpus=gpus, alone=alone)[replica]
    if placement.gpus and expected.adapters:
        check_adapters(settings.dtype, settings.sleep, reloads=not is_0_22())
    return placement


def start(
    expected: ExpectedWeights, tokenizer: PreTrainedTokenizerBase, placement: Placement, folder: Path, seed: int
) -> Any:
    """A running ``AsyncLLM`` with the model's weights, by way of files in ``folder``; ``seed`` is that of requests
    without one.  While its process starts, what will prove it is computed here.

    Raises :class:`..base.UnsupportedModelError`, naming the policy, for a model that vLLM refuses, and
    :class:`..base.EngineError` where its process does not start, or ``folder`` has no space.
    """
    policy, model = f"policy '{expected.label}'", expected.architecture
    # Before the environment is the process's: torch counts GPUs once, by what it sees then.
    arguments = _arguments(expected, placement) | {"seed": seed}
    with environment(expected.settings, placement, folder):
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.async_llm import AsyncLLM

        if current_platform.is_cpu():
            from .heads import check_heads

            check_heads(expected.label, model.config, expected.settings)
        try:
            _write(expected, folder)
            tokenizer.save_pretrained(folder)
        except OSError as error:
            raise EngineError(f"{policy}: {error}") from error
        try:
            config = AsyncEngineArgs(model=str(folder), **arguments).create_engine_config()
        except ValueError as error:  # vLLM's validation, in whose middle the reason stands
            raise UnsupportedModelError(f"{policy}: vLLM does not run {type(model).__name__}: {error}") from error
        with ThreadPoolExecutor(1, thread_name_prefix="vllm-proof") as beside:
            proof = beside.submit(expected.complete)
            try:
                with interruptible():
                    llm = AsyncLLM.from_vllm_config(config, disable_log_stats=True)
            except RuntimeError as error:
                why = f"vLLM's process did not start; it says why above, on stderr: {error}"
                raise EngineError(f"{policy}: {why}") from error
            finally:
                unlink_shared(folder)  # all have it by now
    try:
        proof.result()
    except BaseException:
        llm.shutdown()
        raise
    for file in folder.glob("*.safetensors"):  # were read
        file.unlink()
    return llm


def _write(expected: ExpectedWeights, folder: Path) -> None:
    """The model as a checkpoint in ``folder``, by links to the files that it was read from, as long as they are there
    and its weights are theirs.  Raises ``OSError``, also as :func:`.transfer.check_disk_space`.
    """
    model = expected.architecture
    if not expected.files or not all(file.is_file() for file in expected.files):
        weights = dict(expected.tensors())
        check_disk_space(sum(each.nbytes for each in weights.values()), folder)
        model.save_pretrained(folder, state_dict=weights)
        return
    config = copy.copy(model.config)
    config.architectures = [type(model).__name__]  # as `save_pretrained` does: the files may be of another
    config.save_pretrained(folder)
    for file in expected.files:
        (folder / file.name).symlink_to(file)


def _arguments(expected: ExpectedWeights, placement: Placement) -> dict[str, Any]:
    """vLLM's.  Where the cache's size is given, ``gpu_memory_utilization`` is only what must be free at the start."""
    settings = expected.settings
    arguments: dict[str, Any] = {
        "dtype": settings.dtype,
        "max_model_len": expected.context,
        "max_num_seqs": settings.max_batch_rows,
        "max_num_batched_tokens": max(settings.max_batch_rows, min(8192, settings.max_batch_rows * expected.context)),
        "kv_cache_memory_bytes": int(settings.kv_cache_gib * GIB),
        "block_size": settings.block_size,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "worker_extension_cls": EXTENSION,
        "tensor_parallel_size": settings.tensor_parallel,
        "distributed_executor_backend": EXECUTOR if settings.tensor_parallel == 1 else PARALLEL_EXECUTOR,
        "use_tqdm_on_load": False,
        "disable_log_stats": True,
    }
    if placement.gpus:
        numbers = sum(tensor.numel() for _, tensor in expected.tensors())
        needed = settings.torch_dtype.itemsize * numbers / settings.tensor_parallel + settings.kv_cache_gib * GIB
        least = min(torch.cuda.get_device_properties(gpu).total_memory for gpu in placement.gpus)
        share = min(1.0, needed / least)
        arguments |= {"enable_sleep_mode": settings.sleep > 0, "gpu_memory_utilization": share}
    if placement.transfer != "shared_memory":
        arguments["weight_transfer_config"] = {"backend": placement.transfer}
    return arguments | expected.lora_arguments | settings.compilation(gpu=bool(placement.gpus))


@contextmanager
def environment(
    settings: VllmSettings, placement: Placement | None = None, folder: Path | None = None
) -> Iterator[None]:
    """What the engine's process inherits; the user's own values hold, but for threads, ``placement`` and ``folder``,
    the place of all its temporary files and sockets, which a process that is killed leaves behind.
    """
    wanted = {
        "VLLM_NO_USAGE_STATS": os.environ.get("VLLM_NO_USAGE_STATS", "1"),
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
        # A model in one process has its engine there, too: vLLM's way to bind threads to cores would put all engines on
        # the same ones.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "OMP_NUM_THREADS": str(settings.threads),
        # What torch has compiled stays in this process's temporary folder: the next engine needs it again.
        "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR", default_cache_dir()),
    }
    if not torch.cuda.is_available():  # vLLM 0.32 cannot load there what it has compiled ahead, and compiles it again
        wanted["VLLM_USE_AOT_COMPILE"] = os.environ.get("VLLM_USE_AOT_COMPILE", "0")
    if placement is not None and placement.gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        names = visible.split(",") if visible else list(map(str, range(placement.gpus[-1] + 1)))
        wanted["CUDA_VISIBLE_DEVICES"] = ",".join(names[gpu] for gpu in placement.gpus)
    if folder is not None:  # not of this process, which has looked up its own, for torch's
        wanted |= {"TMPDIR": str(folder), "VLLM_RPC_BASE_PATH": str(folder)}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ |= wanted
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ |= {name: value} if value is not None else {}
