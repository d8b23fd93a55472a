"""The shipped base models: complete, and named where they are damaged."""

import shutil
from pathlib import Path

import pytest

from troupe.models.bases import base_models
from troupe.models.bases.base_models import SHIPPED, BaseModelError, HubModel, base_path, digest, place, resolve
from troupe.models.bases.loading import load_model, load_tokenizer


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


def test_a_model_that_is_not_here_is_refused_with_the_command_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TROUPE_CACHE", str(tmp_path))
    assert place("smollm2_q4") == str(tmp_path / "base_models" / "smollm2_q4")
    with pytest.raises(BaseModelError, match=r"make one with `make smollm2_q4`"):
        resolve("smollm2_q4")
    monkeypatch.setitem(base_models.HUB, "smollm2", HubModel("nobody/nothing", "0" * 40, "0"))
    assert place("smollm2") == "nobody/nothing"
    with pytest.raises(BaseModelError, match=r"`hf download nobody/nothing --revision 0{40}`"):
        resolve("smollm2")


def test_a_model_of_the_hub_is_that_of_its_revision_and_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the hub's cache as its library writes it."""
    revision = "1" * 40
    snapshot = tmp_path / "models--me--small" / "snapshots" / revision
    shutil.copytree(base_path("laptop_couplet"), snapshot)
    weights = digest(snapshot / "model.safetensors")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setitem(base_models.HUB, "smollm2", HubModel("me/small", revision, weights))
    assert place("smollm2") == resolve("smollm2") == str(snapshot)
    with (snapshot / "model.safetensors").open("ab") as file:
        file.write(b"0")
    with pytest.raises(BaseModelError, match=r"model\.safetensors is damaged: sha256 .*, expected"):
        resolve("smollm2")
