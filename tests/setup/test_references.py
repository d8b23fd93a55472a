"""What interpolations refer to, by OmegaConf's grammar."""

import pytest

from troupe.errors import ConfigError
from troupe.setup.references import check_scale, references


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("${scale.vllm.dtype}", {"scale.vllm.dtype"}),
        ("a ${scale.x}, ${oc.env:HOME,${scale.y}}", {"scale.x", "scale.y"}),
        ("runs/${name}/${now:%Y}-${seed}", {"name", "seed"}),
        ("no interpolation, not even ${ this", set()),
        ("\\${scale.x}", set()),
    ],
)
def test_references(value: str, names: set[str]) -> None:
    assert set(references(value)) == names


def test_a_key_of_a_scale_is_one_of_the_packages_or_referred_to() -> None:
    unresolved = "a: ${scale.own.figure}\nb: [1, 'x ${scale.other}']\n# ${scale.comment}\n"
    check_scale({"own": {"figure": 1}, "other": {"deep": {"er": 2}}, "std_floor": 1, "vllm": {"sleep": 0}}, unresolved)
    for stray, key in (
        ({"own": {"figures": 1}}, "scale.own.figures"),
        ({"comment": 1}, "scale.comment"),
        ({"vllm": {"block": 1}}, "scale.vllm.block"),
    ):
        with pytest.raises(ConfigError, match=f"^{key} is an unknown key: no scale of the package has it"):
            check_scale(stray, unresolved)
