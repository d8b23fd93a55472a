"""What was started is closed where a later step of the build fails."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.setup import assembly, team
from troupe.setup.build import build


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[TorchEngine]:
    """The engines that were closed."""
    engines, inner = [], TorchEngine.close

    async def close(self: TorchEngine) -> None:
        await inner(self)
        engines.append(self)

    monkeypatch.setattr(TorchEngine, "close", close)
    return engines


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
        build(cfg)

    monkeypatch.setattr(team, "build_engine", build_engine)
    cfg = composed("experiment=sokoban_specialized", f"run_dir={tmp_path / 'run'}")
    with pytest.raises(MemoryError, match="no room for the second engine"):
        asyncio.run(notebook()) if running else build(cfg)
    assert closed == made and len(made) == 1


def test_a_team_without_its_run(
    composed: Callable[..., Any], closed: list[TorchEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(run: object) -> None:
        raise OSError("no loggers")

    monkeypatch.setattr(assembly, "_loggers", refused)
    with pytest.raises(OSError, match="no loggers"):
        build(composed("experiment=sokoban_specialized", f"run_dir={tmp_path / 'run'}"))
    assert len(closed) == 2 and not (tmp_path / "run").exists()
