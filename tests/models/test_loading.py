"""What is loaded from folders; adapters with settings that the engine does not compute."""

from pathlib import Path

import pytest
import torch
from peft import LoraConfig
from transformers import PreTrainedTokenizerFast

from troupe.models.adapters import attach, export
from troupe.models.loading import is_adapter, load_adapted, load_model, load_tokenizer
from troupe.models.lora_settings import LoraSettings

from .conftest import Tiny


@pytest.fixture
def adapter(tiny: Tiny, tmp_path: Path) -> Path:
    """An adapter's folder, with its base beside it; B is no longer 0."""
    tiny().save_pretrained(tmp_path / "base")
    settings = {"p": LoraSettings(r=2, alpha=4, targets=["q_proj"])}
    model = attach(tiny(), str(tmp_path / "base"), settings, {"p": 0})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter += 0.1
    export(model, "p", tmp_path / "p")
    return tmp_path / "p"


def test_a_model_and_a_tokenizer_of_a_folder(tiny: Tiny, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert not is_adapter(tmp_path)
    loaded = load_model(str(tmp_path), torch.float64)
    assert loaded.dtype == torch.float64
    assert torch.equal(loaded.get_input_embeddings().weight.float(), tiny().get_input_embeddings().weight)
    assert load_tokenizer(str(tmp_path)).get_vocab() == tokenizer.get_vocab()


def test_a_folder_without_a_tokenizer_is_named(tiny: Tiny, tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"{tmp_path} has no tokenizer with tokens: its tokenizer\.json is missing"):
        load_tokenizer(str(tmp_path))


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_an_adapter_is_merged_or_laid_over_its_base(tiny: Tiny, adapter: Path) -> None:
    assert is_adapter(adapter)
    q_proj = "model.layers.0.self_attn.q_proj.weight"
    merged, base = load_model(str(adapter)).state_dict()[q_proj], tiny().state_dict()[q_proj]
    over = load_adapted(adapter, str(adapter.with_name("base")))
    assert over.scale == 2 and torch.equal(over.model.state_dict()[q_proj], base)
    prefix = "base_model.model.model.layers.0.self_attn.q_proj"
    added = over.weights[f"{prefix}.lora_B.weight"] @ over.weights[f"{prefix}.lora_A.weight"]
    assert torch.allclose(merged, base + 2 * added, atol=1e-6) and added.abs().max() > 1e-3
    model = tiny()
    assert load_adapted(adapter, model).model is model


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"use_rslora": True}, "an adapter with use_rslora is not supported"), ({"bias": "all"}, "an adapter with bias")],
)
def test_an_adapter_that_the_engine_does_not_compute_is_refused(
    tiny: Tiny, adapter: Path, settings: dict[str, object], message: str
) -> None:
    config = LoraConfig.from_pretrained(str(adapter))
    for name, value in settings.items():
        setattr(config, name, value)
    config.save_pretrained(str(adapter))
    with pytest.raises(ValueError, match=rf"adapter_config\.json: {message}"):
        load_adapted(adapter, tiny())
