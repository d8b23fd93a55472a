"""What is said: errors of the user's own code, with their place, and what takes long."""

import asyncio
import importlib
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from troupe.envs.base import TeamEnv
from troupe.errors import ConfigError
from troupe.experience import Task
from troupe.rollout.playing import advance, naming, prompt_of
from troupe.setup.command_line import end, fail
from troupe.setup.instantiation import MOST, instantiated, notice, own_error

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


def test_a_step_names_place_task_agent_and_the_frames_of_the_world(barn: TeamEnv, tmp_path: Path) -> None:
    error = raised(lambda: asyncio.run(advance(barn, {"ann": "go"})))
    file = tmp_path / "barn_world.py"
    assert own_error(error) == "\n".join(
        [
            f"KeyError: 'attic', raised at {file}:20, in Barn.find",
            "  step of Barn in turn 0: agent ann said 'go'",
            "  in an episode of task barn-7",
            f'  File "{file}", line 18, in _act',
            "    return self.find({})",
            f'  File "{file}", line 20, in find',
            '    return rooms["attic"]',
        ]
    )


def test_a_prompt_names_the_agent(barn: TeamEnv) -> None:
    text = own_error(raised(lambda: prompt_of(barn, "ann")))
    assert text is not None and "prompt of Barn in turn 0 for agent ann\n" in text
    assert text.startswith("ValueError: invalid literal for int() with base 10: 'no number', raised at ")


def test_a_long_message_is_cut(barn: TeamEnv) -> None:
    text = own_error(raised(lambda: asyncio.run(advance(barn, {"ann": "x" * 100_000}))))
    assert text is not None and "xx ...\n" in text and len(text) < MOST + 1000


def test_a_command_ends_with_it(barn: TeamEnv) -> None:
    error = raised(lambda: asyncio.run(advance(barn, {"ann": "go"})))
    for last in (fail, end):
        with pytest.raises(SystemExit, match=r"(?s)^error: KeyError: 'attic', .*\nthe results are in runs/one$"):
            last(error, "; the results are in runs/one")


def test_errors_of_troupe_itself_keep_their_traceback(barn: TeamEnv, capsys: pytest.CaptureFixture[str]) -> None:
    error = raised(lambda: asyncio.run(advance(None, {})))  # type: ignore[arg-type]
    assert own_error(error) is None
    with pytest.raises(SystemExit):
        end(error)
    assert "Traceback" in (said := capsys.readouterr().err) and "AttributeError: 'NoneType' object" in said
    with pytest.raises(SystemExit, match=r"^error: 'NoneType' object has no attribute 'turn'; more$"):
        fail(error, "; more")


def test_a_class_that_cannot_be_built_has_its_place_unless_it_refuses_a_value(barn: TeamEnv, tmp_path: Path) -> None:
    place = re.escape(f"{tmp_path / 'barn_world.py'}:9, in Barn.__init__")
    with pytest.raises(ConfigError, match=rf"^env: KeyError: 2, raised at {place}\n"):
        instantiated("env", {"_target_": "barn_world.Barn", "rooms": 2})
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
