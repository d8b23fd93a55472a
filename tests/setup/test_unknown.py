"""Answers to unknown keys and choices."""

from troupe.setup.composition import choices
from troupe.setup.unknown import CHOICES, KEYS, unknown_choice, unknown_key, unknown_path


def test_a_renamed_key_is_answered_with_its_new_name() -> None:
    for old, new in KEYS.items():
        assert str(unknown_key(old, ["x"])) == str(unknown_path(old, ["x"])) == f"{old} is now {new}"


def test_a_renamed_choice_is_one_that_is_gone_and_its_new_name_is_there() -> None:
    for group, renamed in CHOICES.items():
        for old, new in renamed.items():
            assert old not in choices(group) and new in choices(group)
            assert str(unknown_choice(group, old, ())) == f"{group}={old} is now {group}={new}"


def test_others_are_answered_with_the_nearest() -> None:
    assert str(unknown_key("loop.iteration", ["iterations", "lockstep"])) == (
        "loop.iteration is an unknown key; did you mean iterations? Known: iterations, lockstep"
    )
    assert str(unknown_choice("regime", "lroa", ["lora", "shared"])) == (
        "regime=lroa is unknown; did you mean lora? Known: lora, shared"
    )
    assert str(unknown_choice("regime", "mean", ["lora", "shared"])) == (
        "regime=mean is unknown. Known: lora, shared"  # a hint at shared would be far
    )
    assert str(unknown_path("loop.iteration", ["loop.iterations", "seed"])) == (
        "loop.iteration is an unknown key; did you mean loop.iterations? docs/configuration.md lists all keys"
    )
