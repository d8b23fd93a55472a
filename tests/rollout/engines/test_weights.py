"""The files that hold a model's weights, as long as it has these."""

import copy
from pathlib import Path

import pytest
import torch

from troupe.models.bases.loading import load_model
from troupe.models.learning.adapters import attach, base_of, export, weights
from troupe.models.learning.settings import LoraSettings
from troupe.rollout.engines.weights import files_of

from .torch.conftest import qwen3


def saved(folder: Path, dtype: torch.dtype, size: str = "1GB") -> Path:
    qwen3().to(dtype).save_pretrained(folder, max_shard_size=size)
    return folder


@pytest.mark.parametrize("size", ["1GB", "20KB"])
def test_a_model_and_its_copies_know_the_files(tmp_path: Path, size: str) -> None:
    model = load_model(str(saved(tmp_path, torch.bfloat16, size)))
    files = set(files_of(model, torch.bfloat16))
    assert files == set(tmp_path.glob("*.safetensors")) and (len(files) > 1) == (size == "20KB")
    assert set(files_of(copy.deepcopy(model), torch.float32)) == files
    pool = attach(model, str(tmp_path), {"plan": LoraSettings(r=2, alpha=4)}, {"plan": 0})
    assert set(files_of(base_of(pool), torch.bfloat16)) == files
    assert files_of(qwen3(), torch.float32) == ()


def test_a_model_that_was_rounded_on_the_way_has_other_weights(tmp_path: Path) -> None:
    model = load_model(str(saved(tmp_path, torch.float32)), torch.bfloat16)
    assert files_of(model, torch.bfloat16) and not files_of(model, torch.float32)


def test_a_merged_adapter_is_in_no_file(tmp_path: Path) -> None:
    base = str(saved(tmp_path / "base", torch.float32))
    pool = attach(load_model(base), base, {"plan": LoraSettings(r=2, alpha=4)}, {"plan": 0})
    export(pool, "plan", tmp_path / "adapter", weights(pool, "plan"))
    assert not files_of(load_model(str(tmp_path / "adapter")), torch.float32)
