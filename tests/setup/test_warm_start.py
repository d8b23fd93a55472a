"""The command line of `troupe warm-start`."""

from pathlib import Path

import pytest

from troupe.errors import ConfigError
from troupe.setup.warm_start import ChosenWorld, WarmStartOptions, chosen_world, curriculum_for
from troupe.warm_start.curriculum import CURRICULA
from troupe.warm_start.recipe import WORLD_RECIPE

WORLD = """
_world_: {agents: [first, second], policies: {laptop: laptop_couplet}}
_target_: troupe.envs.couplet.world.Couplet
horizon: 1
rhymes: 4
"""

FEW = """
from troupe.envs.couplet.world import Couplet


class Few(Couplet):
    def tasks(self, split, count, seed):
        if count > 9:
            raise ValueError(f"there are 9 tasks, not {count}")
        return super().tasks(split, count, seed)
"""


def test_words_are_sorted_into_keys_recipe_and_world() -> None:
    words = ["env=couplet", "++env.horizon=1", "steps=20", "learning_rate=1e-3", "compile=true", "out=bases/x"]
    options = WarmStartOptions.read(["--config-dir", "conf", *words, "hidden=32"])
    assert options == WarmStartOptions(
        config_dir="conf",
        world=("env=couplet", "++env.horizon=1"),
        steps=20,
        compile=True,
        out="bases/x",
        recipe={"learning_rate": 1e-3, "hidden": 32},
    )
    recipe = options.with_recipe(WORLD_RECIPE)
    assert (recipe.steps, recipe.hidden, recipe.learning_rate) == (20, 32, 1e-3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], r"Which world\?  env=NAME or experiment=NAME; or base=NAME: laptop, "),
        (["env=couplet", "base=laptop"], r"Which world\?"),
        (["base=labtop"], r"base=labtop is unknown; did you mean laptop\?"),
        (["env=couplet", "step=3"], r"step=3 is no setting of warm-start; did you mean steps\?"),
        (["env=couplet", "loop.iterations=3"], r"loop\.iterations=3 is no setting of warm-start"),
        (["env=couplet", "--base"], "--base is no setting of warm-start"),
        (["env=couplet", "steps=many"], "steps must be a whole number, got 'many'"),
        (["env=couplet", "hidden=-1"], "hidden must be at least 0, got -1"),
        (["env=couplet", "learning_rate=fast"], "learning_rate must be a number, got 'fast'"),
        (["env=couplet", "again=yes"], "again must be true or false, got 'yes'"),
    ],
)
def test_a_wrong_word_is_named(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WarmStartOptions.read(words)


def test_no_step_is_refused() -> None:
    with pytest.raises(ConfigError, match="steps must be at least 1, got 0"):
        WarmStartOptions.read(["env=couplet", "steps=0"]).with_recipe(WORLD_RECIPE)


def test_the_world_is_the_one_that_train_composes(tmp_path: Path) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "mine.yaml").write_text(WORLD)
    options = WarmStartOptions.read(["--config-dir", str(tmp_path), "env=mine", "env.horizon=3"])
    chosen = chosen_world(options)
    assert chosen.name == "mine"
    assert chosen.env == {"_target_": "troupe.envs.couplet.world.Couplet", "horizon": 3, "rhymes": 4, "history": False}
    assert chosen.bases == {"first": "laptop_couplet", "second": "laptop_couplet"}
    assert chosen.max_tokens == {"first": 12, "second": 12}


def test_an_experiment_chooses_a_world_too() -> None:
    chosen = chosen_world(WarmStartOptions.read(["experiment=sokoban_shared", "env.size=8"]))
    assert (chosen.name, chosen.env["size"], chosen.bases) == ("sokoban", 8, {"shared": "laptop"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["env=couplets"], r"did you mean couplet\?"),
        (["env=couplet", "env.horizons=3"], r"env\.horizons"),
        (["experiment=couplet"], "experiment=couplet"),
    ],
)
def test_a_wrong_override_is_named(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        chosen_world(WarmStartOptions.read(words))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["env.rhymes=9"], r"env\.rhymes must be in \[3, 4\], got 9"),
        (["vocabulary=100"], "vocabulary must be at least 262, all bytes and special tokens, got 100"),
    ],
)
def test_what_cannot_be_made_is_refused_before_training(words: list[str], message: str) -> None:
    options = WarmStartOptions.read(["env=couplet", *words])
    with pytest.raises(ConfigError, match=message):
        curriculum_for(options, chosen_world(options))


def test_a_shipped_base_keeps_its_curriculum() -> None:
    options = WarmStartOptions.read(["base=laptop_math", "seed=3"])
    curriculum, origin = curriculum_for(options, None)
    assert curriculum.words == CURRICULA["laptop_math"].words and origin == {}
    assert curriculum.recipe.seed == 3 and curriculum.recipe.steps == CURRICULA["laptop_math"].recipe.steps


def test_a_split_with_fewer_tasks_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "few.py").write_text(FEW)
    monkeypatch.syspath_prepend(tmp_path)
    chosen = ChosenWorld("few", {"_target_": "few.Few"}, {}, {})
    with pytest.raises(ConfigError, match="validation_tasks=100: there are 9 tasks, not 100"):
        curriculum_for(WarmStartOptions.read(["env=few"]), chosen)
    curriculum, origin = curriculum_for(WarmStartOptions.read(["env=few", "validation_tasks=9"]), chosen)
    assert curriculum.name(0) == "couplet" and origin == {"world": {"_target_": "few.Few"}, "vocabulary": 512}
