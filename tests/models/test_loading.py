"""The shipped base models: whole, and named where they are not."""

import shutil
from pathlib import Path

import pytest

from troupe.models import loading
from troupe.models.loading import SHIPPED, BaseModelError, base_path, load_model, load_tokenizer, resolve


@pytest.mark.parametrize("base", SHIPPED)
def test_a_shipped_base_is_whole_and_small(base: str) -> None:
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
    monkeypatch.setattr(loading, "FOLDER", tmp_path)
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
