"""The dtype that an engine computes in, where it is not that of its models."""

from __future__ import annotations

import copy
import logging

import torch
from transformers import PreTrainedModel

from ....kernels.products import multiplies_bfloat16

log = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def check_dtype(dtype: str | None) -> None:
    """Raise ``ValueError`` for a dtype that the engine does not have."""
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"engine.dtype={dtype}: the torch engine has {', '.join(DTYPES)} and null, that of the models")


def in_dtype(model: PreTrainedModel, dtype: str | None) -> PreTrainedModel:
    """``model``, or a copy of it with weights in ``dtype``, if it has another; a learner may train ``model`` itself.

    Buffers stay as they are: rotary frequencies in bfloat16 would turn far positions by wrong angles.
    """
    if dtype is None or model.dtype == DTYPES[dtype]:
        return model
    if DTYPES[dtype] == torch.bfloat16 and model.device.type == "cpu" and not multiplies_bfloat16():
        log.warning(
            "engine.dtype=bfloat16: this CPU has no instructions for it (AVX512-BF16, AMX); engine.dtype=float32 takes "
            "a half to a quarter of the time"
        )
    converted = copy.deepcopy(model)
    for parameter in converted.parameters():
        parameter.data = parameter.data.to(DTYPES[dtype])
    return converted
