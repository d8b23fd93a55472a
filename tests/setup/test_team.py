"""Teams of adapters, of frozen policies, of several bases; what is closed where one is not whole."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from peft import PeftModel

from troupe.cli import train
from troupe.errors import ConfigError
from troupe.loop import TrainLoop
from troupe.models.bases.base_models import base_path
from troupe.models.bases.loading import checkpoint_weights, load_model, load_tokenizer
from troupe.models.bases.tiny import build_tokenizer
from troupe.models.pools.strategies import StrategySettings
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.setup import assembly, team
from troupe.setup.team import _loaded

from ..asked import evaluated, rows, summary

SMALL = [
    "loop.iterations=2",
    "loop.tasks_per_iteration=3",
    "loop.eval_every=1",
    "loop.validation_tasks=3",
    "loop.test_tasks=3",
    "loop.checkpoint.every=1",
    "env.horizon=2",
]
LORA = ["experiment=sokoban_lora", *SMALL]
FROZEN = [f"policies.tool.{word}" for word in ("tuning=frozen",)] + [
    f"policies.tool.{key}=null" for key in ("optimizer", "scheduler")
]
Build = Callable[..., TrainLoop]
Weights = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def build(composed: Callable[..., DictConfig], tmp_path_factory: pytest.TempPathFactory) -> Build:
    """``build("key=value", ...)``: a small run in a new run directory, not begun."""

    def new(*overrides: str) -> TrainLoop:
        run_dir = tmp_path_factory.mktemp("runs") / "run"
        return train.build(composed(*overrides, f"run_dir={run_dir}"))

    return new


def same(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def checkpoint(path: Path, name: str = "last") -> dict[str, Weights]:
    folders = [file.parent for file in (path / "checkpoints" / name).glob("*/training.pt")]
    return {folder.name: checkpoint_weights(folder) for folder in folders}


def test_a_base_is_read_in_the_dtype_in_which_it_is_kept() -> None:
    for precision, learning, frozen in (("bf16-true", "bfloat16", "bfloat16"), ("bf16-mixed", "float32", "bfloat16")):
        for full, dtype in ((True, learning), (False, frozen)):
            spec: Any = SimpleNamespace(name="plan", base="laptop", full_weights=full)
            assert _loaded([spec], StrategySettings(precision=precision))[0].dtype == getattr(torch, dtype)


# ---- adapters -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def adapted(build: Build) -> Path:
    """The directory of a run of adapters that nobody stopped."""
    loop = build(*LORA)
    train.train(loop)
    return loop.directory.path


def test_adapters_share_one_pool_one_engine_and_one_base(build: Build) -> None:
    loop = build(*LORA)
    policies, engines = loop.team.policies, loop.team.engines
    assert policies["tool"].pool is policies["plan"].pool and engines["tool"] is engines["plan"]
    base = sum(p.numel() for p in load_model("laptop").parameters())
    learner = list(policies["tool"].pool.module.parameters())
    decoders = engines["tool"]._decoders.values()  # type: ignore[attr-defined]
    tensors = [*learner, *(p for d in decoders for p in d.model.parameters())]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    assert sum(storages.values()) == 4 * (base + sum(p.numel() for p in learner if p.requires_grad))


@pytest.mark.slow
async def test_a_base_that_nothing_learns_is_in_bfloat16_and_its_adapters_in_float32(build: Build) -> None:
    """The engine computes with the same memory, and agrees with the learner."""
    loop = build(*LORA, "strategy.precision=bf16-mixed", "algorithm.objective.entropy=0.01")
    module = loop.team.policies["tool"].pool.module  # type: ignore[attr-defined]
    adapters = {id(each) for each in module.adapter_parameters()}
    assert {each.dtype for each in module.parameters() if id(each) in adapters} == {torch.float32}
    assert {each.dtype for each in module.parameters() if id(each) not in adapters} == {torch.bfloat16}
    assert {each.dtype for each in engine_of(loop, "tool").values()} == {torch.bfloat16}
    row = await loop.run_iteration()
    for policy in ("tool", "plan"):
        assert row[f"train/{policy}/grad_norm"] > 0
        assert abs(row[f"train/{policy}/behaviour_kl_nats"]) < 1e-2
    await asyncio.gather(*(engine.close() for engine in set(loop.team.engines.values())))


def test_a_run_of_adapters_leaves_its_metrics_and_peft_folders(adapted: Path) -> None:
    found = rows(adapted)
    assert [row["iteration"] for row in found] == [1, 2]
    for row in found:
        for policy in ("tool", "plan"):
            assert abs(row[f"train/{policy}/behaviour_kl_nats"]) < 1e-4  # engine and learner agree
            assert row[f"train/{policy}/learning_rate"] > 0
    state = json.loads((adapted / "checkpoints" / "last" / "state.json").read_text())
    assert state["versions"] == {"tool": 2, "plan": 2}
    for policy, weights in checkpoint(adapted).items():
        folder = adapted / "checkpoints" / "last" / policy
        assert {file.name for file in folder.iterdir()} >= {"adapter_config.json", "adapter_model.safetensors"}
        assert not (folder / "model.safetensors").exists()
        assert any((weights[name] != 0).any() for name in weights if "lora_B" in name)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_an_adapter_is_loaded_without_troupe(adapted: Path) -> None:
    folder, ids = adapted / "checkpoints" / "last" / "tool", torch.tensor([[5, 6, 7, 8]])
    plain = load_model("laptop")
    with torch.no_grad():
        before = plain(ids).logits
        by_peft = PeftModel.from_pretrained(plain, folder)(ids).logits
        assert (by_peft - load_model(str(folder))(ids).logits).abs().max() < 1e-4  # merged
        assert not torch.equal(by_peft, before)


def test_an_adapter_names_its_base_as_the_configuration_does(adapted: Path) -> None:
    for policy in ("tool", "plan"):
        text = (adapted / "checkpoints" / "last" / policy / "adapter_config.json").read_text()
        assert json.loads(text)["base_model_name_or_path"] == "laptop"
        assert str(base_path("laptop").parent) not in text


@pytest.mark.slow
@pytest.mark.parametrize(("where", "at"), [("collect", 1)])
def test_an_interrupted_run_of_adapters_goes_on_to_the_bit(
    build: Build,
    composed: Callable[..., DictConfig],
    adapted: Path,
    where: str,
    at: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = build(*LORA)
    real = getattr(loop, where)

    async def call(*arguments: Any) -> Any:
        if loop.progress.iteration == at:
            raise KeyboardInterrupt
        return await real(*arguments)

    monkeypatch.setattr(loop, where, call)
    with pytest.raises(KeyboardInterrupt):
        train.train(loop)
    path = loop.directory.path
    train.run(composed(f"resume={path}"))
    assert rows(path) == rows(adapted)
    assert summary(path) == summary(adapted)
    for name in ("last", "best"):
        mine, its = checkpoint(path, name), checkpoint(adapted, name)
        assert mine.keys() == its.keys() and all(same(mine[policy], its[policy]) for policy in mine)
    for file in (adapted / "episodes").iterdir():
        assert (path / "episodes" / file.name).read_bytes() == file.read_bytes()


def ask(run_dir: Path, *words: str) -> dict[str, Any]:
    return dict(evaluated(run_dir, "temperature=own", *words).conditions["sampled"])


@pytest.mark.parametrize(("name", "prefix"), [("base", "eval_before"), ("last", "eval"), ("best", "eval_best")])
def test_an_evaluation_of_adapters_repeats_the_runs_own_figures(adapted: Path, name: str, prefix: str) -> None:
    known = {k.removeprefix(f"{prefix}/"): v for k, v in summary(adapted).items() if k.startswith(f"{prefix}/")}
    found = ask(adapted, f"checkpoint={name}")
    assert {key: found[key] for key in known} == known


@pytest.mark.slow
def test_adapters_change_roles_and_play_with_strangers(adapted: Path) -> None:
    own = ask(adapted, "checkpoint=last")
    swapped = ask(adapted, "checkpoint=last", "swap=true")
    guest = ask(adapted, "checkpoint=base", f"agents.tool={adapted}@last")
    for found in (swapped, guest):
        assert {key: found[key] for key in ("tokens", "turns")} != {key: own[key] for key in ("tokens", "turns")}


# ---- who learns, and when -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_frozen_policy_speaks_and_never_learns(build: Build) -> None:
    loop = build("experiment=sokoban_specialized", *SMALL, *FROZEN)
    train.train(loop)
    path, base = loop.directory.path, load_model("laptop").state_dict()
    assert set(loop.team.policies) == set(checkpoint(path)) == {"plan"}
    assert not same(checkpoint(path)["plan"], base)
    for row in rows(path):
        assert row["rollout/tool/reward"] is not None
        assert not [key for key in row if key.startswith("train/tool/")]
    found, own = ask(path, "checkpoint=last"), summary(path)
    assert [found[key] for key in ("success", "turns")] == [own[f"eval/{key}"] for key in ("success", "turns")]


@pytest.mark.slow
async def test_frozen_policies_and_adapters_meet_on_one_base(build: Build) -> None:
    frozen = [
        "policies.tool.tuning=frozen",
        *(f"policies.tool.{key}=null" for key in ("optimizer", "scheduler", "lora")),
    ]
    loop = build(*LORA, *frozen)
    assert loop.team.engines["tool"] is loop.team.engines["plan"]
    before = {k: v.clone() for k, v in engine_of(loop, "tool").items()}
    await loop.run_iteration()
    assert same(engine_of(loop, "tool"), before) and same(before, load_model("laptop").state_dict())
    assert loop.team.policies["plan"].version == 1
    await loop.team.engines["plan"].close()


def engine_of(loop: TrainLoop, policy: str) -> Weights:
    found: Weights = loop.team.engines[policy]._decoders[policy].model.state_dict()  # type: ignore[attr-defined]
    return found


BOTH = [pytest.param("sokoban_specialized", marks=pytest.mark.slow), "sokoban_lora"]


@pytest.mark.parametrize("experiment", BOTH)
@pytest.mark.slow
async def test_policies_learn_in_turns(build: Build, experiment: str) -> None:
    turns = [f"policies.{name}.schedule.alternate={{every: 1, turn: {i}}}" for i, name in enumerate(("tool", "plan"))]
    loop = build(f"experiment={experiment}", *SMALL, *turns, "policies.plan.schedule.freeze_until=2")

    async def weights() -> dict[str, Weights]:
        return {
            name: {k: v.clone() for k, v in (await policy.weights()).items()}
            for name, policy in loop.team.policies.items()
        }

    learnt, before = [], await weights()
    for _ in range(4):
        row, loop.progress.row = await loop.run_iteration(), {}
        after = await weights()
        learnt.append({name for name in after if not same(before[name], after[name])})
        assert {name for name in after if f"train/{name}/loss" in row} == learnt[-1]
        before = after
    assert learnt == [{"tool"}, set(), {"tool"}, {"plan"}]
    assert {name: policy.version for name, policy in loop.team.policies.items()} == {"tool": 2, "plan": 1}
    await asyncio.gather(*(engine.close() for engine in set(loop.team.engines.values())))


# ---- other bases ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped base with its words numbered the other way round."""
    folder = tmp_path_factory.mktemp("base") / "other"
    before = load_tokenizer("laptop").get_vocab()
    specials = set(load_tokenizer("laptop").all_special_tokens)
    tokenizer = build_tokenizer(
        [word for word in sorted(before, key=before.__getitem__, reverse=True) if word not in specials]
    )
    after, model = tokenizer.get_vocab(), load_model("laptop")
    assert after.keys() == before.keys() and after != before
    with torch.no_grad():
        table = model.get_input_embeddings().weight
        old = table.clone()
        for word, index in after.items():
            table[index] = old[before[word]]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("experiment", BOTH)
async def test_a_team_of_two_bases_and_two_tokenizers(build: Build, other_base: Path, experiment: str) -> None:
    entropy = "algorithm.objective.entropy=0.01"  # there is a gradient even where no candidate earns anything
    loop = build(f"experiment={experiment}", *SMALL, f"policies.plan.base={other_base}", entropy)
    assert loop.team.engines["tool"] is not loop.team.engines["plan"]
    asked: dict[str, set[str]] = {"tool": set(), "plan": set()}
    collect = loop.sampler.collect

    async def collected(*arguments: Any) -> Any:
        found = await collect(*arguments)
        for (episode,) in found:
            for node in episode.nodes:
                own = loop.team.tokenizers[node.agent]
                asked[node.agent].add(own.decode(node.prompt_ids))
                assert all(
                    own.decode(c.completion.token_ids, skip_special_tokens=True) == c.completion.text
                    for c in node.candidates
                )
        return found

    loop.sampler.collect = collected  # type: ignore[method-assign]
    row = await loop.run_iteration()
    for agent, texts in asked.items():
        assert texts and all(text.startswith(f"{agent} sokoban ") and "<unk>" not in text for text in texts), texts
    for name in ("tool", "plan"):
        assert row[f"train/{name}/grad_norm"] > 0
        assert abs(row[f"train/{name}/behaviour_kl_nats"]) < 1e-4
    await asyncio.gather(*(engine.close() for engine in loop.team.engines.values()))


def test_an_unknown_target_is_told_before_anything_is_written(
    composed: Callable[..., DictConfig], tmp_path: Path
) -> None:
    cfg = composed(*LORA, "policies.plan.lora.targets=[q_proj,query]", f"run_dir={tmp_path / 'run'}")
    with pytest.raises(ValueError, match=r"policies\.plan\.lora\.targets: .*'query'\. Known: q_proj"):
        train.build(cfg)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_merged_adapter_can_be_a_base(build: Build, adapted: Path) -> None:
    folder = adapted / "checkpoints" / "last"
    loop = build("experiment=sokoban_specialized", *SMALL, f"policies.tool.base={folder / 'tool'}")
    mine, base = engine_of(loop, "tool"), load_model("laptop").state_dict()
    assert mine.keys() == base.keys() and not same(mine, base)
    with pytest.raises(ConfigError, match=r"policies\.tool\.base=.* is an adapter itself"):
        build(*LORA, f"policies.tool.base={folder / 'tool'}")
    with pytest.raises(ConfigError, match=r"policies\.tool\.base=.* cannot be loaded"):
        build("experiment=sokoban_specialized", *SMALL, f"policies.tool.base={folder / 'rng.pt'}")


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[TorchEngine]:
    """The engines that were closed."""
    engines, inner = [], TorchEngine.close

    async def close(self: TorchEngine) -> None:
        await inner(self)
        engines.append(self)

    monkeypatch.setattr(TorchEngine, "close", close)
    return engines


@pytest.mark.slow
@pytest.mark.parametrize("running", [False, True])
def test_the_engines_of_a_team_that_is_not_whole(
    running: bool,
    composed: Callable[..., Any],
    closed: list[TorchEngine],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner, made = team.build_engine, []

    def build_engine(*arguments: Any) -> Any:
        if made:
            raise MemoryError("no room for the second engine")
        made.append(inner(*arguments))
        return made[0]

    async def notebook() -> None:
        assembly.build(cfg)

    monkeypatch.setattr(team, "build_engine", build_engine)
    cfg = composed("experiment=sokoban_specialized", f"run_dir={tmp_path / 'run'}")
    with pytest.raises(MemoryError, match="no room for the second engine"):
        asyncio.run(notebook()) if running else assembly.build(cfg)
    assert closed == made and len(made) == 1


def test_a_team_without_its_run(
    composed: Callable[..., Any], closed: list[TorchEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(run: object, observers: object) -> None:
        raise OSError("no loggers")

    monkeypatch.setattr(assembly, "_loggers", refused)
    with pytest.raises(OSError, match="no loggers"):
        assembly.build(composed("experiment=sokoban_specialized", f"run_dir={tmp_path / 'run'}"))
    assert len(closed) == 2 and not (tmp_path / "run").exists()
