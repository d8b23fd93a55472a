"""The section ``execution``: what is refused, what a dry run shows, and that local runs do without Ray."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from troupe.cluster import actors
from troupe.cluster.actors import ClusterError
from troupe.cluster.execution import Execution
from troupe.errors import ConfigError
from troupe.runs.fingerprint import training_hash
from troupe.runs.run import RunReader
from troupe.setup.checks import check, checked
from troupe.setup.dry_run import plan
from troupe.setup.parts import parts_of
from troupe.setup.resume import continued

RAY = ("experiment=sokoban_specialized", "run_dir=nowhere", "execution=ray", "strategy.accelerator=cpu")
TWO = "engine=vllm engine.tensor_parallel=2"
GPUS = "strategy.accelerator=cuda execution.resources.pool.gpus=1"

REFUSED = {
    "execution.kind=dask": r"execution\.kind must be local or ray",
    "execution.restarts=-1": r"execution\.restarts must be a whole number of at least 0",
    "execution.address=head": r"execution\.address must be null, auto, HOST:PORT or ray://\.\.\., got 'head'",
    "execution.address=http://head:8265": r"execution\.address must be null",
    "execution.address=6379": r"execution\.address must be",
    "execution.resources.pool.cpus=-1": r"execution\.resources\.pool: cpus must be at least 0",
    "execution.resources.engine.cpus=0": r"execution\.resources\.engine: cpus and gpus are 0",
    "execution.resources.pool.gpus=1": r"execution\.resources\.pool\.gpus=1: policy 'tool' has the CPU",
    "strategy.accelerator=cuda": r"strategy\.accelerator=cuda: Ray hides GPUs that are not asked for",
    "strategy=ddp strategy.devices=2 strategy.num_nodes=2": r"policies\.tool: with execution=ray Ray chooses the nodes",
    "strategy=ddp": r"policies\.tool: with execution=ray Ray chooses the devices of a pool; give their number",
    "execution.worlds=2": r"execution\.worlds=2: rounds of lockstep begin when all episodes of one process wait",
    "algorithm=maac execution.resources.critic.gpus=1": r"resources\.critic\.gpus=1: critic 'team' has the CPU",
    "algorithm=maac execution.resources.critic.cpus=0": r"execution\.resources\.critic: cpus and gpus are 0",
    "engine._target_=mine.Engine": r"engine: Engine was never run in an actor of Ray; .* engine=torch or engine=vllm",
    "engine=vllm engine.device=cuda:1": r"engine\.device=cuda:1: with execution=ray Ray chooses the GPU of an engine",
    "engine=vllm engine.transfer=nccl": r"engine\.transfer=nccl: with execution=ray vLLM has the GPU of its actor",
    "engine=vllm engine.threads=2": r"resources\.engine\.cpus=1 is too little for engine\.threads=2; give 2",
    f"{TWO}": r"\.cpus=1 is too little for engine\.threads=1 with engine\.tensor_parallel=2; give 2",
    f"{TWO} {GPUS} execution.resources.engine.gpus=1": r"gpus=1: with engine\.tensor_parallel=2 .* on 2 GPUs; give 2",
    f"{TWO} {GPUS} execution.resources.engine.cpus=2": r"Ray hides GPUs .* give execution\.resources\.engine\.gpus=2",
    f"engine=vllm engine.data_parallel=2 {GPUS} execution.resources.engine.gpus=2": r"each .* on one GPU; give 1",
    f"{GPUS} execution.resources.engine.gpus=2": r"\.engine\.gpus=2: each of these processes computes on one GPU",
    f"engine=vllm {GPUS}": r"strategy\.accelerator=cuda: Ray hides GPUs .* give execution\.resources\.engine\.gpus=1",
}


@pytest.mark.parametrize(("word", "message"), REFUSED.items())
def test_what_does_not_work_is_refused_with_the_reason_also_in_a_dry_run(
    word: str, message: str, composed: Callable[..., Any]
) -> None:
    with pytest.raises(ConfigError, match=message):
        checked(composed(*RAY, *word.split()))


def test_worlds_need_ray(composed: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"execution\.worlds=2 has no effect with execution=local"):
        checked(composed("experiment=sokoban_specialized", "run_dir=nowhere", "+execution.worlds=2"))


@pytest.mark.parametrize("address", [None, "auto", "head:6379", "10.0.0.1:6379", "[::1]:6379", "ray://head:10001"])
def test_the_addresses_of_ray(address: str | None) -> None:
    assert Execution("ray", address).address == address


def test_a_dry_run_says_that_ray_is_missing_and_a_run_is_refused(
    composed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors, "find_spec", lambda name: None)
    _, lacks = checked(composed(*RAY))
    assert lacks == ["execution=ray needs Ray: pip install 'troupe-rl[ray]'"]
    parts = parts_of(OmegaConf.to_container(composed(*RAY), resolve=True), None)  # type: ignore[arg-type]
    with pytest.raises(ClusterError, match="execution=ray needs Ray"):
        check(parts, new=True)


@pytest.mark.slow
def test_a_dry_run_shows_the_actors(composed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "find_spec", lambda name: name)  # whether Ray is here or not
    words = "strategy=fsdp2", "strategy.devices=4", "+policies.plan.strategy=ddp", "+policies.plan.devices=2"
    worlds = "execution.worlds=3", "loop.lockstep=false", "execution.resources.worlds.cpus=0.5"
    parts, lacks = checked(composed(*RAY, *words, *worlds))
    assert lacks == []
    shown = plan(parts)
    assert shown.actors == (
        "actors: pool tool, 4 x {'CPU': 1}",
        "actors: engine of tool, 1 x {'CPU': 1}",
        "actors: pool plan, 2 x {'CPU': 1}",
        "actors: engine of plan, 1 x {'CPU': 1}",
        "actors: worlds, 3 x {'CPU': 0.5}",
        "Ray keeps 9.5 CPUs and 0 GPUs for them",
    )
    assert [pool.processes for pool in shown.pools] == [4, 2] and "pool plan, 2 x" in str(shown)
    # To Lightning each process is a node with one device; the run's own process has one.
    assert {(spec.place.devices, spec.place.num_nodes) for spec in parts.policies.values()} == {(1, 4), (1, 2)}  # type: ignore[union-attr]
    assert parts.strategy.processes == 1


@pytest.mark.slow
def test_a_dry_run_shows_the_actors_of_critics(composed: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actors, "find_spec", lambda name: name)
    words = "algorithm=iac", "strategy=fsdp2", "strategy.devices=2", "execution.resources.critic.cpus=2"
    parts, lacks = checked(composed(*RAY, *words))
    assert lacks == []
    assert plan(parts).actors[-3:] == (
        "actors: critic tool, 1 x {'CPU': 2}",
        "actors: critic plan, 1 x {'CPU': 2}",
        "Ray keeps 10 CPUs and 0 GPUs for them",
    )
    assert [(pool.processes, pool.placed) for pool in plan(parts).pools] == [(2, True), (2, True), (1, True), (1, True)]


def test_execution_is_no_part_of_what_is_trained(composed: Callable[..., Any]) -> None:
    local, ray = (
        OmegaConf.to_container(composed("experiment=sokoban_specialized", "run_dir=nowhere", word), resolve=True)
        for word in ("execution=local", "execution=ray")
    )
    assert training_hash(local) == training_hash(ray)  # type: ignore[arg-type]
    del local["execution"]  # type: ignore[union-attr, arg-type]  # as in runs before there was the section
    assert parts_of(local, None).config.execution.kind == "local"  # type: ignore[arg-type]


def test_the_cluster_of_a_stored_run_is_not_asked(composed: Callable[..., Any], run_dir: Path) -> None:
    stored = OmegaConf.create({**OmegaConf.to_container(composed(*RAY, "execution.address=evil:6379"), resolve=True)})  # type: ignore[dict-item]
    (run_dir / "config.yaml").write_text(OmegaConf.to_yaml(stored))
    for words, expected in (((), None), (("execution=ray", "execution.address=mine:6379"), "mine:6379")):
        cfg = continued(composed(f"resume={run_dir}", *words), RunReader(run_dir))
        assert (cfg.execution.kind, cfg.execution.address) == ("ray", expected)
    assert continued(composed(f"resume={run_dir}", "execution=local"), RunReader(run_dir)).execution == {
        "kind": "local"
    }


@pytest.mark.slow
def test_a_local_run_imports_neither_ray_nor_vllm() -> None:
    code = (
        "import sys; sys.modules['ray'] = None; import troupe.cli.train, troupe.setup.assembly;"
        "import troupe.models.pools.processes; print(*sorted(name for name in sys.modules if 'vllm' in name))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["troupe.rollout.engines.vllm", "troupe.rollout.engines.vllm.settings"]
