"""A Ray cluster of several nodes in this machine, and runs on it."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from troupe.experience import Episode
from troupe.loop import TrainLoop
from troupe.setup.assembly import build

from .helpers import SETTINGS, Sampled

PATIENCE_S = 400


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without resources, for the run's process.  Nodes may take minutes to start, on a busy machine."""
    import ray
    from ray._private import services
    from ray.cluster_utils import Cluster

    inner = services.get_node

    def get_node(*arguments: Any) -> Any:
        """Ray asks for 30 seconds."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with suppress(RuntimeError):
                return inner(*arguments)
            time.sleep(0.1)
        return inner(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(services, "get_node", get_node)
        patch.setenv("RAY_agent_register_timeout_ms", f"{PATIENCE_S * 1000}")
        patch.setenv("RAY_worker_register_timeout_seconds", f"{PATIENCE_S}")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def built(composed: Callable[..., Any], cluster: Any) -> Iterator[Callable[..., TrainLoop]]:
    """``built("key=value", ..., nodes=4)``: a run on nodes of ``cpus`` each; without nodes, in this process.  It is
    Sokoban's, unless ``experiment`` is another."""
    added: list[Any] = []

    def make(*overrides: str, nodes: int = 0, cpus: int = 1, experiment: str = "sokoban_specialized") -> TrainLoop:
        added.extend(cluster.add_node(num_cpus=cpus) for _ in range(nodes))
        on_ray = ("execution=ray", f"execution.address={cluster.address}") if nodes else ()
        return build(composed(f"experiment={experiment}", *SETTINGS, *on_ray, *overrides))

    yield make
    for node in [node for node in added if node in cluster.worker_nodes]:
        cluster.remove_node(node)


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> Sampled:
    """By run and iteration, the tokens of all candidates; of an iteration that is played again, those of the last."""
    inner, tokens = TrainLoop.collect, {}

    async def collect(self: TrainLoop) -> list[Episode]:
        episodes = await inner(self)
        spoken = [candidate.completion.token_ids for each in episodes for _, candidate in each.candidates()]
        tokens[self.directory.path.name, self.progress.iteration] = spoken
        return episodes

    monkeypatch.setattr(TrainLoop, "collect", collect)
    return tokens
