"""Supervised pretraining: batches, interruption, export."""

import json
from dataclasses import replace
from pathlib import Path

from troupe.models.loading import load_model
from troupe.models.tiny import build_tokenizer
from troupe.warm_start.curriculum import CURRICULA, Recipe
from troupe.warm_start.finetune import WarmStart, collate, export


def test_only_answers_are_fitted() -> None:
    tokenizer = build_tokenizer("ask this more say it".split())
    prompt = [{"role": "user", "content": "ask this more"}]
    ((ids, labels),) = collate(tokenizer, [(prompt, "say it"), (prompt, "it")], micro_batches=1)
    for row, length in enumerate((1, 2)):  # short ones first
        is_fitted = labels[row] != -100
        assert ids.shape[1] == 16 and int(is_fitted.sum()) == length + 1
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
    start = WarmStart(curriculum, tmp_path / "out")
    start.run(until=3)
    again = WarmStart(curriculum, tmp_path / "out")
    again.load()
    assert again.step == 3
    again.run()
    export(again, tmp_path / "base")
    model = load_model(str(tmp_path / "base"))
    assert again.step == recipe.steps == 6
    for name, weight in again.model.state_dict().items():
        assert (model.state_dict()[name] == weight).all(), name
    checksums = json.loads((tmp_path / "base" / "checksums.json").read_text())
    assert {"config.json", "model.safetensors", "tokenizer.json", "recipe.json"} <= checksums.keys()
