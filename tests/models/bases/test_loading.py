"""What is loaded from folders; adapters with settings that the engine does not compute."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from jinja2.exceptions import SecurityError
from peft import LoraConfig
from transformers import BloomConfig, PreTrainedTokenizerFast

from troupe.models.bases import loading
from troupe.models.bases.loading import (
    checkpoint_weights,
    load_adapted,
    load_adapter,
    load_model,
    load_shape,
    load_tokenizer,
)
from troupe.models.bases.reading import is_adapter
from troupe.models.learning.adapters import attach, export, weights
from troupe.models.learning.settings import LoraSettings

from ..conftest import Tiny


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
    export(model, "p", tmp_path / "p", weights(model, "p"))
    return tmp_path / "p"


def test_a_model_and_a_tokenizer_of_a_folder(tiny: Tiny, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    tiny().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert not is_adapter(tmp_path)
    loaded = load_model(str(tmp_path), torch.float64)
    assert loaded.dtype == torch.float64
    assert torch.equal(loaded.get_input_embeddings().weight.float(), tiny().get_input_embeddings().weight)
    assert load_tokenizer(str(tmp_path)).get_vocab() == tokenizer.get_vocab()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_code_for_bfloat16_is_bounded_before_its_first_product(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    bounded: list[bool] = []
    monkeypatch.setattr(loading, "bound_cache", lambda: bounded.append(True))
    tiny().save_pretrained(tmp_path)
    load_model(str(tmp_path), dtype)
    assert bounded == [True] * (dtype == torch.bfloat16)


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


# ---- folders of strangers -------------------------------------------------------------------------------------------


class Touch:
    """What writes ``canary`` when it is unpickled."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.canary}",)


def edit(file: Path, **values: Any) -> None:
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**content, **values}))


@pytest.fixture
def folder(tiny: Tiny, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    """A base model; beside it is code that writes ``canary``."""
    tiny().save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    (tmp_path / "base" / "evil.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w').close()\nclass Evil: pass\n")
    return tmp_path / "base"


def test_code_beside_weights_is_neither_run_nor_asked_about(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda text: "y")  # a user who says yes to everything
    auto = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil", "AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    edit(folder / "config.json", auto_map=auto, model_type="evil")
    edit(folder / "tokenizer_config.json", auto_map=auto, tokenizer_class="Evil")
    for load in (load_model, load_tokenizer, load_shape):
        with pytest.raises(ValueError, match="custom code"):
            load(str(folder))
    assert not (folder.parent / "canary").exists()


def test_weights_that_are_a_pickle_are_not_read(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    for name in ("pytorch_model.bin", "model.pt", "consolidated.00.pth"):
        with (folder / name).open("wb") as file:
            pickle.dump(Touch(folder.parent / "canary"), file)
    with pytest.raises(OSError, match=r"safetensors"):
        load_model(str(folder))
    with pytest.raises(OSError, match=r"safetensors"):
        checkpoint_weights(folder)
    assert not (folder.parent / "canary").exists()


def test_adapters_of_strangers(tiny: Tiny, adapter: Path) -> None:
    weights = (adapter / "adapter_model.safetensors").read_bytes()
    (adapter / "adapter_model.safetensors").unlink()
    with (adapter / "adapter_model.bin").open("wb") as file:
        pickle.dump(Touch(adapter / "canary"), file)
    for load in (load_adapted, lambda place, model: load_adapter(model, str(place))):
        with pytest.raises(ValueError, match=r"has no adapter_model\.safetensors"):
            load(adapter, tiny())
    (adapter / "adapter_model.safetensors").write_bytes(weights)
    edit(adapter / "adapter_config.json", peft_type="PROMPT_TUNING", tokenizer_kwargs={"trust_remote_code": True})
    with pytest.raises(ValueError, match="peft_type must be LORA, got 'PROMPT_TUNING'"):
        load_adapted(adapter, tiny())
    edit(adapter / "adapter_config.json", peft_type="LORA", base_model_name_or_path=str(adapter))
    with pytest.raises(ValueError, match="base_model_name_or_path leads back to"):
        load_model(str(adapter))
    assert not (adapter / "canary").exists()


def test_a_chat_template_is_run_in_a_sandbox(tokenizer: PreTrainedTokenizerFast) -> None:
    reach = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    for template in (reach, "{{ messages.append(1) }}", "{% for i in range(999999) %}{% endfor %}"):
        with pytest.raises((SecurityError, OverflowError)):
            tokenizer.apply_chat_template([{"role": "user", "content": "x"}], chat_template=template, tokenize=False)


def test_a_model_without_a_known_context_is_refused(tmp_path: Path) -> None:
    BloomConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"^config\.json: a bloom has no max_position_embeddings"):
        load_shape(str(tmp_path))
