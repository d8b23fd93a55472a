"""The engine of docs/add_an_engine.md works as it is printed: alone, and in a run."""

import json
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose

from troupe.cli import train
from troupe.experience import Request, Sampling
from troupe.models.bases.tiny import build_tokenizer
from troupe.setup.assembly import build
from troupe.setup.composition import configurations

from .torch.conftest import VOCABULARY, qwen3
from .torch.conftest import build as build_model

PAGE = (Path(__file__).parents[3] / "docs" / "add_an_engine.md").read_text()
SMALL = ["loop.iterations=1", "loop.tasks_per_iteration=2", "env.horizon=1", "diagnostics=off", "name=guide"]
SMALL += ["loop.validation_tasks=2", "loop.test_tasks=2"]


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def engine_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "engine.py").write_text(block("python"))
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module("mine.engine").GenerateEngine
    for name in ("mine.engine", "mine"):
        sys.modules.pop(name)


async def test_its_tokens_follow_from_the_seed_and_its_logprobs_from_the_model(engine_class: Any) -> None:
    model = build_model(qwen3)
    engine = engine_class(models={"p": model}, tokenizer=build_tokenizer([f"w{i}" for i in range(VOCABULARY - 4)]))
    request = Request("p", (5, 9, 12), 4, Sampling(max_tokens=6, temperature=0.7), seed=3)
    completions = await engine.generate(request)
    assert await engine.generate(request) == completions and len({each.token_ids for each in completions}) > 1
    for each in completions:
        ids = torch.tensor([(*request.prompt_ids, *each.token_ids)])
        with torch.inference_mode():
            plain = (model(ids).logits[0, 2:-1].float() / 0.7).log_softmax(-1)
        expected = plain.gather(1, ids[0, 3:, None])[:, 0].tolist()
        assert each.logprobs == pytest.approx(expected, abs=1e-4)
    weights = {name: tensor + 0.05 * torch.randn_like(tensor) for name, tensor in model.state_dict().items()}
    await engine.load("p", weights, 2)
    changed = await engine.generate(request)
    assert [each.version for each in changed] == [2] * 4 and changed[0].logprobs != completions[0].logprobs


def test_it_plays_a_run(engine_class: Any, tmp_path: Path) -> None:
    (tmp_path / "conf" / "engine").mkdir(parents=True)
    (tmp_path / "conf" / "engine" / "generate.yaml").write_text(block("yaml"))
    words = ["experiment=sokoban_shared", "engine=generate", f"run_dir={tmp_path / 'run'}", *SMALL]
    with configurations(str(tmp_path / "conf")):
        loop = build(compose("train", overrides=words))
    assert all(isinstance(engine, engine_class) for engine in loop.team.engines.values())
    train.train(loop)
    row = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert row["iteration"] == 1 and row["mismatch/tool/max_abs_nats"] < 1e-4
