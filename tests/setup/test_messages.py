"""What is said: faults of the user's own code, and what takes long."""

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from troupe.envs.base import TeamEnv
from troupe.errors import ConfigError
from troupe.experience import Task
from troupe.rollout.playing import advance, naming, prompt_of
from troupe.setup.command_line import end
from troupe.setup.instantiation import instantiated, notice

WORLD = """
from troupe.envs.turns import TurnTakingWorld

class Barn(TurnTakingWorld):
    name = "barn"
    def __init__(self, rooms=1):
        if rooms < 1:
            raise ValueError(f"env.rooms must be at least 1, got {rooms}")
        self.rooms = {1: "hall"}[rooms]
        super().__init__(stages=(("ann",),), horizon=1)
        self._begin()
    def tasks(self, split, count, seed): return []
    def reset(self, task): pass
    def _state(self): return ()
    def _prompt(self, agent):
        return int("no number")
    async def _act(self, actions):
        return self.find({})
    def find(self, rooms):
        return rooms["attic"]
"""


@pytest.fixture
def barn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TeamEnv:
    (tmp_path / "barn_world.py").write_text(WORLD)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "barn_world", raising=False)
    return importlib.import_module("barn_world").Barn()


def raised(action: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as error, naming(Task("barn-7", "train", {})):
        action()
    return error.value


@pytest.mark.parametrize("wrong", ["step", "prompt"])
def test_a_fault_of_a_world_has_its_traceback_and_the_task(
    barn: TeamEnv, capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    if wrong == "step":
        error = raised(lambda: asyncio.run(advance(barn, {"ann": "go"})))
        note, line, last = "step of Barn in turn 0: agent ann said 'go'", 'rooms["attic"]', "KeyError: 'attic'"
    else:
        error = raised(lambda: prompt_of(barn, "ann"))
        note, line, last = (
            "prompt of Barn in turn 0 for agent ann",
            'int("no number")',
            "ValueError: invalid .*",
        )
    with pytest.raises(SystemExit, match=rf"^error: {last}; the results are in runs/one$"):
        end(error, "; the results are in runs/one")
    said = capsys.readouterr().err
    assert "Traceback" in said and line in said and note in said and "in an episode of task barn-7" in said


def test_a_command_ends_with_the_message_of_an_error_that_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for error in (ConfigError("seed: no"), ValueError("seed: no")):
        with pytest.raises(SystemExit, match=r"^error: seed: no; more$"):
            end(error, "; more")
        assert not capsys.readouterr().err
    with pytest.raises(SystemExit):
        end(ValueError("shapes differ"), refusal=ConfigError)
    assert "ValueError: shapes differ" in capsys.readouterr().err


def test_a_class_that_cannot_be_built_refuses_a_value_or_has_a_fault(barn: TeamEnv) -> None:
    with pytest.raises(KeyError) as error:
        instantiated("env", {"_target_": "barn_world.Barn", "rooms": 2})
    assert error.value.__notes__ == ["making env"]
    with pytest.raises(ConfigError, match=r"^env\.rooms must be at least 1, got 0$"):
        instantiated("env", {"_target_": "barn_world.Barn", "rooms": 0})


def test_what_takes_long_is_said() -> None:
    messages: list[str] = []
    said = Event()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())
            said.set()

    logger, handler = logging.getLogger("troupe.setup.instantiation"), Handler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with notice("drawing tasks", after_s=0.0):
            assert said.wait(60)
        with notice("nothing", after_s=3600.0):
            pass
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert messages == ["drawing tasks"]
