"""What a run would do: figures by hand, and nothing written."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from troupe.cli import train
from troupe.errors import ConfigError
from troupe.models.bases.loading import load_model
from troupe.rollout.engines.vllm.engine import VllmEngine
from troupe.setup.dry_run import Plan, by_device, plan
from troupe.setup.parts import Parts, parts_of
from troupe.sweep.plan import most_completions


def composed(*overrides: str) -> tuple[Any, Parts]:
    with initialize_config_module("troupe.configs", version_base="1.3"):
        cfg = compose("train", overrides=["run_dir=nowhere", "name=test", *overrides])
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    return config, parts_of(config, OmegaConf.to_yaml(cfg))


def planned(*overrides: str) -> Plan:
    return plan(composed(*overrides)[1])


def test_the_default_by_hand() -> None:
    found = planned("loop.tasks_per_iteration=10", "loop.iterations=7", "engine.max_batch_rows=100")
    # 10 tasks, 4 candidates, 2 agents, 4 turns; messages of at most 40 tokens.
    assert (found.completions, found.tokens, found.optimizer_steps, found.iterations) == (320, 12_800, 4, 7)
    assert [(pool.policy, pool.agents) for pool in found.pools] == [("tool", ("tool",)), ("plan", ("plan",))]
    parameters = sum(p.numel() for p in load_model("laptop").parameters())
    for pool in found.pools:
        assert pool.parameters == parameters
        assert (pool.memory.weights, pool.memory.gradients, pool.memory.optimizer) == (
            4 * parameters,
            4 * parameters,
            8 * parameters,
        )
        # 4 layers, 2 key-value heads of 32: 4 * 2 * 2 * 32 numbers a token; 25 prompts of 472 and 100 answers of 40.
        assert pool.memory.engine == 4 * parameters + (25 * 472 + 100 * 40) * 512 * 4
    [bounded, *_] = planned("engine.max_batch_rows=100", "engine.max_cache_gib=0.01").pools
    assert bounded.memory.engine == 4 * bounded.parameters + 0.01 * 2**30
    prefixes = planned("engine.max_batch_rows=100", "engine.prefix_cache_gib=0.5", "regime=lora").pools[0]
    assert prefixes.memory.engine - planned("engine.max_batch_rows=100", "regime=lora").pools[0].memory.engine == 2**30


def test_training_trees_cost_completions_of_their_own() -> None:
    found = planned("diagnostics.trees.watched=100000", "diagnostics.trees.every=3", "loop.validation_tasks=50")
    line = "every 3 iterations: 2 of the tasks, and 50 validation tasks with at most 1,600 completions more"
    assert line in " ".join(str(found).split())  # 4 candidates, 2 agents, 4 turns
    assert "training trees" not in str(planned("diagnostics=off"))


@pytest.mark.parametrize("experiment", ["sokoban_specialized", "couplet_shared", "math_lora"])
def test_an_experiment_with_vllm(experiment: str) -> None:
    config, parts = composed(f"experiment={experiment}", "engine=vllm")
    inspect.signature(VllmEngine).bind({}, None, **{k: v for k, v in config["engine"].items() if k[0] != "_"})
    assert config["algorithm"]["objective"]["importance_cap"] == 2.0
    assert {spec.train_config.objective.importance_cap for spec in parts.policies.values() if spec.train_config} == {
        2.0
    }
    pools = plan(parts).pools
    if experiment == "math_lora":
        (pool,) = pools
        assert set(pool.agents) == set(parts.router.team) and 0 < pool.trained < pool.parameters
    for pool in pools:
        assert pool.memory.engine == 4 * pool.parameters + 0.5 * 2**30


def test_vllms_memory_is_its_copy_of_the_weights_and_the_cache_that_it_is_given() -> None:
    for pool in planned("engine=vllm", "engine.dtype=bfloat16", "engine.kv_cache_gib=0.25").pools:
        assert pool.memory.engine == 2 * pool.parameters + 2**28
    with pytest.raises(ConfigError, match=r"engine\.kv_cache_gib must be above 0, got 0"):
        planned("engine=vllm", "engine.kv_cache_gib=0")


def test_vllm_decodes_together_what_a_rollout_has_under_way() -> None:
    def rows(*words: str) -> set[int | None]:
        return {pool.engine["max_batch_rows"] for pool in planned("engine=vllm", *words).pools}

    assert rows("loop.tasks_per_iteration=60", "algorithm.sampler.k=4") == {60 * 4 * 2}
    assert rows("loop.tasks_per_iteration=6") == {256}
    assert rows("loop.tasks_per_iteration=600") == {1024}
    assert rows("engine.max_batch_rows=16") == {16}


@pytest.mark.slow
def test_shards_and_replicas_of_vllm_need_memory_on_the_next_gpus() -> None:
    words = (
        "engine=vllm",
        "engine.kv_cache_gib=0.25",
        "regime=shared",
        "strategy.accelerator=cuda",
        "strategy.devices=1",
    )
    parallel = "engine.tensor_parallel=2", "engine.data_parallel=2"
    (pool,) = planned(*words, *parallel).pools
    assert pool.memory.engine == 4 * pool.parameters / 2 + 2**28
    learner, engine = pool.memory.total - pool.memory.engine, pool.memory.engine
    others = {f"cuda:{index}": ("engine of shared", engine) for index in (1, 2, 3)}
    assert by_device([pool]) == {"cuda:0": ("shared", learner + engine)} | others
    assert "VllmEngine, 4 processes" in str(planned(*words, *parallel))
    (pool,) = planned(*words, *parallel, "engine.device=cuda:4").pools
    apart = {f"cuda:{index}": ("engine of shared", engine) for index in (4, 5, 6, 7)}
    assert by_device([pool]) == {"cuda:0": ("shared", learner)} | apart
    (pool,) = planned(*words[:3], *parallel, "strategy.accelerator=cpu").pools
    assert by_device([pool]) == {"cpu": ("shared", learner + 4 * engine)}


def test_a_shared_policy_has_one_pool_and_both_agents() -> None:
    (pool,) = planned("regime=shared").pools
    assert pool.agents == ("tool", "plan")


def test_looking_ahead_costs() -> None:
    # The tool agent's K candidates are each answered by the planner once.
    assert planned("algorithm.reward.team=global").completions == planned().completions * 3 // 2


@pytest.mark.slow
def test_every_topology_says_what_it_costs() -> None:
    few = ["loop.tasks_per_iteration=1", "env.horizon=2"]  # steps: tool, plan, tool, plan
    cost = {
        "algorithm=mas_grpo": 4 * 4,
        "algorithm=magrpo": 4 + 4**2 + 4**3 + 4**4,
        "algorithm=c3": 4 * 4 + 3 * (3 + 2 + 1),
        "algorithm=dapo": 4 * 4 * (1 + 3),  # as many tasks again in each round that replaces them
    }
    for algorithm, completions in cost.items():
        assert planned(algorithm, *few).completions == completions, algorithm
    assert planned("algorithm.sampler.k_by_agent={tool: 8}", *few).completions == 2 * 8 + 2 * 4
    assert planned("algorithm=magrpo", "algorithm.sampler.growth=best", *few).completions == 4 * 4


def test_sharding_divides_what_it_shards() -> None:
    (whole, _), (zero2, _), (fsdp2, _), (kept, _) = (
        planned(*words).pools
        for words in (
            ["strategy.precision=bf16-mixed"],
            ["strategy=deepspeed_zero2", "strategy.devices=4", "strategy.gradient_checkpointing=false"],
            ["strategy=fsdp2", "strategy.devices=4", "strategy.num_nodes=2", "strategy.precision=64-true"],
            ["strategy=deepspeed_zero3", "strategy.strategy.cpu_offload=true"],
        )
    )
    n = 4 * whole.parameters
    assert (whole.memory.weights, whole.memory.gradients, whole.memory.optimizer) == (n, n, 2 * n)
    assert (zero2.memory.weights, zero2.memory.gradients, zero2.memory.optimizer) == (n + n / 4, n / 4, n / 2)
    assert zero2.memory.activations == whole.memory.activations
    assert (fsdp2.memory.weights, fsdp2.memory.gradients, fsdp2.memory.optimizer) == (n / 4, n / 4, n / 2)
    # Recomputed: 4 inputs of 128 and one layer's 14 * 128 + 4 * 384, instead of 4 such layers; 8 bytes a number.
    layer = 14 * 128 + 4 * 384
    words = whole.memory.activations / (4 * 8192) - 4 * layer
    # A pass gathers, of a sharded model, the embedding and the last norm with their gradients, two layers and the
    # gradients of one, and the messages that bring or take them.
    model = load_model("laptop")
    of_layer = sum(p.numel() for p in model.model.layers[0].parameters())
    gathered = 4 * (whole.parameters - 4 * of_layer) + 6 * of_layer
    assert fsdp2.memory.activations == 8 * (8192 * (4 * 128 + layer + words) + gathered)
    assert fsdp2.memory.gathered == 8 * whole.parameters and whole.memory.gathered == 0
    assert fsdp2.memory.total == n + max(fsdp2.memory.activations, 2 * n) + fsdp2.memory.engine
    assert (kept.memory.weights, kept.memory.gradients, kept.memory.optimizer) == (0, n, 0)


@pytest.mark.slow
def test_a_sharded_base_leaves_the_adapters_whole_and_the_engine_a_base_of_its_own() -> None:
    (shared,), (sharded,) = (
        planned("regime=lora", *words).pools
        for words in ([], ["strategy=fsdp2", "strategy.devices=4", "strategy.gradient_checkpointing=false"])
    )
    base = shared.parameters - shared.trained
    assert shared.memory.weights == 4 * shared.parameters
    assert sharded.memory.weights == 4 * (base / 4 + shared.trained)
    assert (sharded.memory.gradients, sharded.memory.optimizer) == (4 * shared.trained, 8 * shared.trained)
    assert sharded.memory.engine == shared.memory.engine + 4 * base
    assert sharded.memory.gathered == 0


def test_a_reference_is_a_copy_of_the_weights() -> None:
    for pool in planned("algorithm.objective.kl=0.1").pools:
        assert pool.memory.weights == 2 * 4 * pool.parameters


def test_eight_devices_hold_two_models_of_8b() -> None:
    eight = planned("experiment=sokoban_specialized", "scale=paper_8b", "strategy=fsdp2", "strategy.devices=8")
    pools = eight.pools
    for pool in pools:
        assert pool.processes == 8 and pool.parameters == 8_190_735_360
        static = pool.memory.weights + pool.memory.gradients + pool.memory.optimizer
        assert static == 16 * pool.parameters / 8
    found = by_device(pools)
    assert len(found) == 8 and "auto:0 ... auto:7: tool + plan, about 173 GiB each: more than a GPU" in str(eight)
    for names, size in found.values():
        assert names == "tool + plan" and size == sum(pool.memory.total for pool in pools)


def test_the_plan_names_the_gpu_that_suffices() -> None:
    one = str(planned("experiment=math_lora", "scale=paper_8b"))
    assert "about 56.5 GiB: a GPU of 80 GB" in one
    assert "a GPU of" not in str(planned("experiment=math_lora"))
    assert "a GPU of 16 GB" in str(planned("experiment=math_lora", "strategy.accelerator=gpu"))


def test_the_plan_says_who_is_where() -> None:
    words = ["strategy.accelerator=gpu", "+policies.tool.devices=[0]", "+policies.plan.devices=[1,2]"]
    found = planned(*words, "+policies.plan.strategy=fsdp2")
    tool, plan = found.pools
    assert (tool.devices, tool.processes, plan.devices, plan.processes) == (("gpu:0",), 1, ("gpu:1", "gpu:2"), 2)
    assert by_device(found.pools) == {
        "gpu:0": ("tool", tool.memory.total),
        "gpu:1": ("plan", plan.memory.total),
        "gpu:2": ("plan", plan.memory.total - plan.memory.engine),  # the engine is on the first alone
    }
    assert "gpu:1, gpu:2 (2 processes), its own" in " ".join(str(found).split())
    on_cpu = planned("strategy.accelerator=cpu", "+policies.plan.devices=2", "+policies.plan.strategy=ddp")
    tool, plan = on_cpu.pools
    together = tool.memory.total + 2 * plan.memory.total - plan.memory.engine
    assert by_device(on_cpu.pools) == {"cpu": ("tool + plan", together)}


def test_it_is_printed_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with initialize_config_module("troupe.configs", version_base="1.3"):
        train.show_plan(compose("train", overrides=["run_dir=here", "name=test", "experiment=plan_path_specialized"]))
    printed = capsys.readouterr().out
    assert "at most 3,072 completions of 122,880 tokens" in printed and "803,968" in printed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm.sampler.k=2000", r"algorithm\.sampler\.k=2000 is more than engine\.max_batch_rows=1024"),
        ("engine.max_batch_rows=[1,2]", r"engine\.max_batch_rows must be a whole number of at least 1, got \[1, 2\]"),
        ("algorithm.credit=${algorithm.sampler}", r"algorithm\.credit\._target_=.*: a TreeSampler cannot stand here"),
        ("+scale.std_floor.k=1", r"algorithm\.credit\.std_floor must be a number, got \{'k': 1\}"),
        ("algorithm.reward.team=mine", r"algorithm\.reward\.team must be global, own, both, got 'mine'"),
        ("algorithm.sampler.k=1", r"algorithm\.sampler\.k=1"),
        ("policies.tool.base=nowhere/at_all", r"policies\.tool\.base=nowhere/at_all cannot be found"),
        ("strategy.precision=8-true", r"strategy\.precision must be one of 32-true, .* got '8-true'"),
        ("strategy.devices=0", r"strategy\.devices must be auto, a whole number of at least 1, .*, got 0"),
        ("+strategy.zero=1", r"strategy\.zero is an unknown key"),
        ("+env.colour=red", r"env\.colour is an unknown key"),
    ],
)
def test_what_cannot_run_is_refused(override: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match=message):
        planned(override)


def test_the_team_s_reward_of_a_turn_is_refused_where_returns_are_compared() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.reward\.team=global has no effect .*\(ChainSampler\)"):
        planned("algorithm=mas_grpo", "+algorithm.reward.team=global")


def test_a_frozen_base_is_in_bfloat16_and_its_adapters_are_not() -> None:
    [whole], [half] = (planned("regime=lora", f"strategy.precision={name}").pools for name in ("32-true", "bf16-mixed"))
    frozen = whole.parameters - whole.trained
    assert (whole.memory.weights, half.memory.weights) == (4 * whole.parameters, 2 * frozen + 4 * half.trained)
    assert half.memory.activations == whole.memory.activations / 2
    assert half.memory.gradients == whole.memory.gradients


@pytest.mark.parametrize(
    "words",
    [
        ["algorithm.reward.team=own"],
        ["algorithm.reward.team=global"],
        ["experiment=math_team_specialized", "algorithm.reward.team=global"],
        ["algorithm=mas_grpo"],
        ["experiment=code_collab_specialized", "env.horizon=2"],
    ],
)
def test_a_sweep_plans_the_completions_of_a_dry_run(words: list[str]) -> None:
    config, parts = composed(*words)
    assert most_completions(config) == (run_plan := plan(parts)).completions * run_plan.iterations
