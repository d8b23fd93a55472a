"""The shipped base models: complete, and named where they are damaged."""

import shutil
from pathlib import Path

import pytest

from troupe.models import base_models
from troupe.models.base_models import SHIPPED, BaseModelError, base_path, resolve
from troupe.models.loading import load_model, load_tokenizer


@pytest.mark.parametrize("base", SHIPPED)
def test_a_shipped_base_is_complete_and_small(base: str) -> None:
    folder = Path(resolve(base))
    assert (folder / "README.md").is_file()
    assert sum(file.stat().st_size for file in folder.iterdir()) < 4e6
    model, tokenizer = load_model(base), load_tokenizer(base)
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.eos_token_id == tokenizer.eos_token_id


def test_other_names_are_left_alone() -> None:
    assert resolve("Qwen/Qwen3-1.7B") == "Qwen/Qwen3-1.7B"


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_base_is_named_with_what_makes_it_again(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(base_path("laptop_couplet"), tmp_path / "laptop_couplet")
    monkeypatch.setattr(base_models, "FOLDER", tmp_path)
    assert resolve("laptop_couplet") == str(folder)
    if damage == "changed":
        (folder / "config.json").write_text("{}")
    else:
        (folder / "config.json").unlink()
    with pytest.raises(BaseModelError, match=r"config\.json is damaged: .*`make base_model base=laptop_couplet`"):
        resolve("laptop_couplet")
    (folder / "checksums.json").unlink()
    with pytest.raises(BaseModelError, match=f"no base model in {folder}; make one with"):
        resolve("laptop_couplet")
