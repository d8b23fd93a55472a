"""The policies of a run as transformers models."""

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import Qwen3ForCausalLM

from troupe import Experiment, Run
from troupe.errors import ConfigError
from troupe.models.bases.loading import checkpoint_weights, load_model

SMALL = [
    *("seed=7", "env.horizon=1", "loop.iterations=1", "loop.tasks_per_iteration=2", "loop.eval_every=1"),
    *("loop.test_tasks=2", "loop.validation_tasks=2"),
]


def trained(experiment: str, path: Path) -> Run:
    return Experiment.compose(experiment, [*SMALL, f"run_dir={path}"]).train()


def test_full_weights_of_every_checkpoint(tmp_path: Path) -> None:
    run = trained("sokoban_shared", tmp_path / "run")
    assert run.policies == ["shared"] and run.config["team"] == {"tool": "shared", "plan": "shared"}
    model, tokenizer = run.policy("shared", "last")
    assert isinstance(model, Qwen3ForCausalLM)
    expected = checkpoint_weights(run.checkpoint("last") / "shared")
    assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())
    before = run.policy("shared", "base").model.state_dict()
    shipped = load_model("laptop").state_dict()
    assert all(torch.equal(value, shipped[name]) for name, value in before.items())
    assert any(not torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [(type(each), each.path) for each in Run.find(tmp_path)] == [(Run, run.path)]
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "sokoban"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    assert model.generate(**prompt, max_new_tokens=2, do_sample=False).shape[1] <= prompt["input_ids"].shape[1] + 2
    with pytest.raises(ConfigError, match="has no policy 'tool': agent 'tool' speaks with policy 'shared'"):
        run.policy("tool")
    with pytest.raises(ConfigError, match=r"has no policy 'shard'; did you mean shared\?"):
        run.policy("shard")


def test_messages_and_candidates_as_tables(tmp_path: Path) -> None:
    run = trained("sokoban_shared", tmp_path / "run")
    messages, candidates = run.messages, run.candidates
    test = messages[messages["evaluation"] == "test_00001"]
    said = [message["said"] for episode in run.episodes("test", 1) for message in episode["messages"]]
    assert list(test["said"]) == said and set(messages["agent"]) == {"tool", "plan"}
    nodes = [node for tree in run.tree_records() for node in tree["nodes"]]
    assert len(candidates) == sum(len(node["candidates"]) for node in nodes)
    trees = run.trees
    assert trees["candidates"].sum() == len(candidates) and trees["nodes"].sum() == len(nodes)
    assert list(trees["task"]) == [tree["task_id"] for tree in run.tree_records()]
    means = candidates.groupby(["episode", "node"])["advantage"].mean()
    assert means.abs().max() < 1e-6, "a group's advantages add up to 0"
    dataset = run.to_dataset()
    assert dataset["text"][:] == list(candidates["text"]) and dataset["prompt"][0] == nodes[0]["prompt"]
    page = run._repr_html_()
    assert ">finished</td>" in page and "before training" in page and str(run.path) in page


@pytest.mark.slow
def test_adapters_as_peft_models_or_merged(tmp_path: Path) -> None:
    run = trained("sokoban_lora", tmp_path / "run")
    adapted, tokenizer = run.policy("plan", "last")
    merged, _ = run.policy("plan", "last", merged=True)
    assert isinstance(adapted, PeftModel) and isinstance(merged, Qwen3ForCausalLM)
    prompt = torch.tensor([tokenizer.encode("sokoban", add_special_tokens=False)])
    with torch.no_grad():
        scores = [model(prompt).logits for model in (adapted, merged, run.policy("plan", "base").model)]
    torch.testing.assert_close(scores[0], scores[1])
    assert not torch.equal(scores[0], scores[2])
