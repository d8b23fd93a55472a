"""Files of models and states that are made to harm: one error that names the fault, and little memory."""

import json
import os
import resource
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from troupe.models.bases.loading import checkpoint_weights, load_model, load_shape, load_tokenizer
from troupe.models.bases.reading import read_states

MIB = 1 << 20


@pytest.fixture
def folder(tiny: Callable[[], Qwen3ForCausalLM], tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    tiny().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# ---- weights --------------------------------------------------------------------------------------------------------


def weights_file(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(shape: Any, begin: int, end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


TWICE = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}'
WEIGHTS = {
    "a header of 2^63 bytes": weights_file({}, length=1 << 63),
    "a header of a gigabyte": weights_file({}, length=1 << 30),
    "a header longer than the file": weights_file({}, length=4096),
    "a shape that overflows": weights_file({"w": tensor([1 << 62, 4], 0, 4)}, bytes(4)),
    "a shape that overflows and has no element": weights_file({"w": tensor([1 << 40, 1 << 40, 0], 0, 0)}),
    "four terabytes": weights_file({"w": tensor([1 << 40], 0, 1 << 42)}, bytes(4)),
    "missing data": weights_file({"w": tensor([4], 0, 16)}, bytes(4)),
    "data of nobody": weights_file({"w": tensor([1], 0, 4)}, bytes(8)),
    "offsets that overlap": weights_file({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, bytes(12)),
    "negative offsets": weights_file({"w": tensor([2], -8, 0)}, bytes(8)),
    "offsets in reverse": weights_file({"w": tensor([2], 8, 0)}, bytes(8)),
    "a gap": weights_file({"w": tensor([1], 4, 8)}, bytes(8)),
    "a name twice": weights_file(TWICE, bytes(8)),
    "an unknown type": weights_file({"w": tensor([1], 0, 4, "Q7")}, bytes(4)),
    "a broken shape": weights_file({"w": tensor([1.5], 0, 4)}, bytes(4)),
    "deep JSON": weights_file(b'{"a":' * 100_000),
    "no JSON": weights_file(b"\xff" * 16),
    "a list": weights_file(b"[]"),
    "nothing": b"",
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights(folder: Path, case: str) -> None:
    (folder / "model.safetensors").write_bytes(WEIGHTS[case])
    before = peak_mib()
    for load in (lambda: load_model(str(folder)), lambda: checkpoint_weights(folder)):
        with pytest.raises(ValueError, match="damaged or cut off"):
            load()
    assert peak_mib() - before < 64


def test_weights_that_lack_a_tensor_are_not_drawn_at_random(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    for name in [name for name in weights if "q_proj" in name]:
        del weights[name]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"its weights lack model\.layers\.0\.self_attn\.q_proj\.weight and \d others"):
        load_model(str(folder))


# ---- configurations and tokenizers ----------------------------------------------------------------------------------


def edited(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


CONFIGURATIONS = {
    "a vocabulary of gigabytes": ({"vocab_size": 2_000_000_000}, r"config\.json: vocab_size=2000000000 is more than"),
    "a vocabulary beyond int64": ({"vocab_size": 10**30}, r"config\.json: vocab_size=10+ is more than"),
    "a negative vocabulary": ({"vocab_size": -1}, "negative dimension"),
    "a vocabulary in words": ({"vocab_size": "many"}, "vocab_size"),
    "other weights": ({"vocab_size": 7}, r"other shapes than config\.json says"),
    "ten million layers": (
        {"num_hidden_layers": 10**7, "layer_types": None},
        r"config\.json: num_hidden_layers=10000000 is more than",
    ),
    "ten million layers below": ({"text_config": {"num_hidden_layers": 10**7}}, "is more than 1024"),
    "gigabytes of a head": ({"head_dim": 10**6}, r"config\.json: head_dim=1000000 is more than 8192"),
    "a billion labels": ({"num_labels": 10**9}, r"config\.json: num_labels=10+ is more than 65536"),
    "a long list": ({"eos_token_id": [1] * 10**6}, r"config\.json has \d+ bytes, more than 1048576"),
    "no heads": ({"num_attention_heads": 0}, "damaged, or do not fit together"),
    "types in a list": ({"model_type": ["qwen3"]}, "damaged, or do not fit together"),
    "an attribute of torch": ({"dtype": "load"}, "damaged, or do not fit together"),
    "half a quantisation": ({"quantization_config": {"quant_method": "gptq"}}, "damaged, or do not fit together"),
}


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_configurations(folder: Path, case: str) -> None:
    values, message = CONFIGURATIONS[case]
    edited(folder / "config.json", **values)
    before = peak_mib()
    with pytest.raises(ValueError, match=message):
        load_model(str(folder))
    assert peak_mib() - before < 64


PLACES = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]


@pytest.mark.parametrize("name", [*PLACES, "adapter_config.json", "additional_chat_templates/a.jinja"])
def test_files_beside_the_weights_that_are_too_large_or_none(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    with (folder / name).open("wb") as file:
        file.truncate(40 << 30)
    for load in (load_model, load_shape, load_tokenizer):
        with pytest.raises(ValueError, match=f"{name} has {40 << 30} bytes, more than"):
            load(str(folder))
    (folder / name).unlink()
    os.mkfifo(folder / name)
    for load in (load_shape, load_tokenizer):
        with pytest.raises(ValueError, match=f"{name} is no file"):
            load(str(folder))


@pytest.mark.parametrize("text", ["[]", '{"a":' * 200_000, "9" * 5000, "\x00"])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_texts_that_are_no_configuration(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises((ValueError, OSError)):
        load_shape(str(folder)) if name == "config.json" else load_tokenizer(str(folder))


@pytest.mark.parametrize("name", ["attn_implementation", "_attn_implementation"])
def test_code_on_the_hub_that_a_configuration_names_as_its_attention(folder: Path, name: str) -> None:
    edited(folder / "config.json", **{name: "kernels-community/flash-attn2"})
    model = load_model(str(folder))  # transformers would fetch the kernel and import it
    assert model.config._attn_implementation in ("sdpa", "eager")


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(version=7),
        lambda content: content["model"].update(vocab={"x": -1}),
        lambda content: content.update(
            pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}
        ),
        lambda content: content.update(added_tokens=[{"id": 1 << 40, "content": "x"}]),
    ],
)
def test_tokenizers(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((folder / "tokenizer.json").read_text())
    change(content)
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="damaged, or do not fit together"):
        load_tokenizer(str(folder))


# ---- states ---------------------------------------------------------------------------------------------------------


def test_states_that_unfold(tmp_path: Path) -> None:
    torch.save({"t": torch.zeros(8 * MIB)}, tmp_path / "plain.pt")
    with (
        zipfile.ZipFile(tmp_path / "plain.pt") as plain,
        zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for entry in plain.infolist():
            bomb.writestr(entry.filename, plain.read(entry))
    (tmp_path / "plain.pt").unlink()
    assert torch.load(tmp_path / "bomb.pt", weights_only=True)["t"].numel() == 8 * MIB  # torch unfolds it
    with pytest.raises(ValueError, match=r"bomb\.pt would unfold to 33\d{6} bytes, and has 3\d{4}"):
        read_states(tmp_path / "bomb.pt")


def test_states_that_share_one_content(tmp_path: Path) -> None:
    torch.save({"t": torch.zeros(1000)}, tmp_path / "states.pt")
    content = (tmp_path / "states.pt").read_bytes()
    start = content.index(b"PK\x01\x02")  # the directory, whose entries may all point to the same bytes
    end = content.rindex(b"PK\x05\x06")
    end = content.index(b"PK\x06\x06", start) if b"PK\x06\x06" in content[start:] else end
    directory = content[start:end]
    count, size = 50 * content[start:end].count(b"PK\x01\x02"), 50 * len(directory)
    last = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, count, count, size, start, 0)
    (tmp_path / "states.pt").write_bytes(content[:start] + 50 * directory + last)
    with pytest.raises(ValueError, match=r"states\.pt would unfold to"):
        read_states(tmp_path / "states.pt")


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"PK\x03\x04" + bytes(200)])
def test_states_that_are_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "states.pt").write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        read_states(tmp_path / "states.pt")


def test_states_without_keys(tmp_path: Path) -> None:
    torch.save([1], tmp_path / "states.pt")
    with pytest.raises(ValueError, match=r"states\.pt holds no keys"):
        read_states(tmp_path / "states.pt")


def shared_lists() -> Any:
    """Of a few kilobytes, 2^40 values for whoever walks through them."""
    value: Any = [0, 0]
    for _ in range(40):
        value = [value, value]
    return value


def wide_lists() -> Any:
    value: Any = [0] * 1000
    for _ in range(10):
        value = [value] * 1000
    return value


def deep_list() -> Any:
    value: Any = 0
    for _ in range(100):
        value = [value]
    return value


STATES: dict[str, tuple[Callable[[], Any], str]] = {
    "lists that contain each other": (shared_lists, "more than 1048576 values"),
    "wide lists": (wide_lists, "more than 1048576 values"),
    "a deep list": (deep_list, "or 64 within each other"),
    "a terabyte of one element": (lambda: torch.zeros(1).expand(1 << 38), "a tensor of .* that has no such content"),
    "a sparse tensor": (lambda: torch.eye(2).to_sparse(), "torch._utils _rebuild_sparse_tensor"),
    "a tensor without content": (lambda: torch.empty(1 << 40, device="meta"), "torch._utils _rebuild_meta_tensor"),
    "a set": (lambda: {1}, "(__builtin__|builtins) set"),
    "keys that are no names": (lambda: {(1, 2): 3}, "keys that are no names"),
}


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
@pytest.mark.parametrize("case", STATES)
def test_states_that_are_more_than_their_file(tmp_path: Path, case: str) -> None:
    make, reason = STATES[case]
    torch.save({"optimizer": make()}, tmp_path / "states.pt")
    with pytest.raises(ValueError, match=rf"states\.pt .*{reason}"):
        read_states(tmp_path / "states.pt")


class Memory:
    """What is unpickled as 64 GiB."""

    def __reduce__(self) -> Any:
        return bytearray, (1 << 36,)


def test_states_that_ask_for_memory(tmp_path: Path) -> None:
    torch.save({"a": Memory()}, tmp_path / "states.pt")
    with pytest.raises(ValueError, match=r"states\.pt holds (__builtin__|builtins) bytearray, and not only tensors"):
        read_states(tmp_path / "states.pt")
