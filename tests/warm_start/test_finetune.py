"""Supervised pretraining: batches, interruption, export."""

import json
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest

from troupe.envs.couplet.world import Couplet
from troupe.errors import ConfigError
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.models.bases.tiny import build_tokenizer
from troupe.warm_start.curriculum import CURRICULA, Curriculum, Recipe, curriculum_of
from troupe.warm_start.finetune import WarmStart, collate, export, is_finished


def test_only_answers_are_fitted() -> None:
    tokenizer = build_tokenizer("ask this more say it".split())
    prompt = [{"role": "user", "content": "ask this more"}]
    ((ids, labels),) = collate(tokenizer, [(prompt, "say it"), (prompt, "it")], micro_batches=1)
    for row, length in enumerate((1, 2)):  # short ones first
        is_fitted = labels[row] != -100
        assert ids.shape[1] == 8 and int(is_fitted.sum()) == length + 1
        assert (labels[row][is_fitted] == ids[row][is_fitted]).all()
        assert tokenizer.decode(labels[row][is_fitted]) == ("it <eos>", "say it <eos>")[row]


def test_a_run_can_be_interrupted_resumed_and_exported(tmp_path: Path) -> None:
    recipe = Recipe(
        hidden=16,
        layers=1,
        heads=2,
        stable_steps=4,
        decay_steps=2,
        flawed_steps=0,
        batch_size=16,
        warmup=1,
        expert_share=0.5,
    )
    curriculum = replace(CURRICULA["laptop_couplet"], recipe=recipe)
    start = WarmStart(curriculum, tmp_path / "work", {})
    start.run(until=3)
    again = WarmStart(curriculum, tmp_path / "work", {})
    assert again.step == 3
    again.run()
    export(again, tmp_path / "base")
    model = load_model(str(tmp_path / "base"))
    assert again.step == recipe.steps == 6
    for name, weight in again.model.state_dict().items():
        assert (model.state_dict()[name] == weight).all(), name
    checksums = json.loads((tmp_path / "base" / "checksums.json").read_text())
    assert {"config.json", "model.safetensors", "tokenizer.json", "recipe.json"} <= checksums.keys()


TINY = Recipe(hidden=16, layers=1, heads=2, batch_size=8, warmup=1).lasting(4)


def in_any_words(recipe: Recipe = TINY) -> Curriculum:
    return curriculum_of(Couplet(), recipe, vocabulary=300)


def test_a_world_of_any_words_is_continued_with_its_tokenizer(tmp_path: Path) -> None:
    start = WarmStart(in_any_words(), tmp_path / "work", {"world": {"horizon": 2}})
    start.run(until=2)
    again = WarmStart(in_any_words(), tmp_path / "work", {"world": {"horizon": 2}})
    assert again.tokenizer.get_vocab() == start.tokenizer.get_vocab()
    start.run()
    again.run()
    for name, weight in again.model.state_dict().items():
        assert (start.model.state_dict()[name] == weight).all(), name
    export(again, tmp_path / "base")
    assert load_tokenizer(str(tmp_path / "base")).get_vocab() == start.tokenizer.get_vocab()
    assert is_finished(tmp_path / "base", TINY, {"world": {"horizon": 2}})


def test_a_request_to_stop_ends_it_after_the_step(tmp_path: Path) -> None:
    start = WarmStart(in_any_words(), tmp_path / "work", {})
    start.stop_requested = True
    start.run()
    assert start.step == 0 and (tmp_path / "work" / "state.pt").is_file()


def test_an_error_of_the_world_is_told_and_ends_the_process_that_asked_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = WarmStart(in_any_words(), tmp_path / "work", {})
    before = set(active_children())

    def fault(world: Couplet, *_: object, **__: object) -> str:
        raise RuntimeError("a fault of the world")

    monkeypatch.setattr(Couplet, "demonstration", fault)
    with pytest.raises(RuntimeError, match="a fault of the world"):  # which keeps its traceback meanwhile
        start.run()
    for child in set(active_children()) - before:
        child.join(60)
        assert child.exitcode is not None, "at exit it would be waited for, in vain"


def test_another_warm_start_is_not_continued_and_not_replaced(tmp_path: Path) -> None:
    start = WarmStart(in_any_words(), tmp_path / "work", {"world": {"horizon": 2}})
    start.save()
    export(start, tmp_path / "base")
    other = replace(TINY, seed=1)
    with pytest.raises(ConfigError, match=r"state\.pt is of a warm start with seed=0, not 1; delete it"):
        WarmStart(in_any_words(other), tmp_path / "work", {"world": {"horizon": 2}})
    with pytest.raises(ConfigError, match=r"with world=\{'horizon': 2\}, not \{'horizon': 1\}; delete it"):
        WarmStart(in_any_words(), tmp_path / "work", {"world": {"horizon": 1}})
    with pytest.raises(ConfigError, match=r"base is of a warm start with seed=0, not 1; again=true replaces it"):
        is_finished(tmp_path / "base", other, {"world": {"horizon": 2}})
    with pytest.raises(ConfigError, match=r"of a warm start with steps=4, not 8; again=true replaces it"):
        is_finished(tmp_path / "base", TINY.lasting(8), {"world": {"horizon": 2}})
    assert not is_finished(tmp_path / "nothing", TINY, {})
