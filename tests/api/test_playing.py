"""Play: a team in the terminal, with people in its seats, piped."""

import io
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from rich.console import Console
from rich.text import Text

from troupe import Experiment, Run
from troupe.api.playing import InputEndedError, play_team
from troupe.cli.start import play_words
from troupe.envs.signalling.world import Signalling
from troupe.errors import ConfigError
from troupe.evaluation.episodes import EpisodeResult
from troupe.reports.console import EpisodePrinter

Play = Callable[..., tuple[list[EpisodeResult], str]]


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run without training, whose checkpoints have the base model's weights."""
    small = ["seed=7", "env.horizon=2", "loop.iterations=0", "loop.test_tasks=4", "loop.validation_tasks=1"]
    path = tmp_path_factory.mktemp("played") / "run"
    return Experiment.compose("sokoban_specialized", [*small, f"run_dir={path}"]).train()


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Play:
    """``played("key=value", ..., typed="R\\n")``: the episodes, and the console."""

    def asked(*words: str, typed: str = "") -> tuple[list[EpisodeResult], str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        with initialize_config_module("troupe.configs", version_base="1.3"):
            keys: Any = OmegaConf.to_container(compose("play", overrides=play_words(words)))
            shown = io.StringIO()
            return play_team(keys, Console(file=shown, highlight=False)), shown.getvalue()

    return asked


def test_a_run_plays_the_episodes_of_its_evaluation(team: Run, played: Play) -> None:
    recorded = team.episodes("test")
    results, shown = played(f"run={team.path}", "checkpoint=last", "task=1", "tasks=2")
    assert [result.messages for result in results] == [episode["messages"] for episode in recorded[1:3]]
    assert [result.task_id for result in results] == re.findall(r"^task (\S+)$", shown, re.MULTILINE)
    for result in results:
        assert all("  " + row in shown for picture in result.pictures for row in picture)
        for message in result.messages:
            rewards = f"(outcome {message['team']:+.2f}, local {message['local']:+.2f})"
            assert f"{message['agent']}: {message['said']}  {rewards}" in shown
    assert len(re.findall(r"^(not )?solved after \d turns?$", shown, re.MULTILINE)) == 2


def test_a_terminal_with_colours_shows_the_drawing() -> None:
    world = Signalling()
    world.reset(world.tasks("test", 1, seed=0)[0])
    start = EpisodeResult("task", False, 0, pictures=[("rows",)])
    shown = {}
    for colour in (False, True):
        console = Console(file=io.StringIO(), force_terminal=colour, no_color=not colour, width=200, highlight=False)
        EpisodePrinter(console).step(start, 0, world.horizon, False, world.draw().text)
        shown[colour] = console.file.getvalue()  # type: ignore[attr-defined]
    assert "  rows\n" in shown[False] and "\x1b[" not in shown[False]
    assert "\x1b[" in shown[True] and "rows" not in shown[True]
    assert "┃ colours" in Text.from_ansi(shown[True]).plain


def test_a_person_takes_a_seat(team: Run, played: Play, capsys: pytest.CaptureFixture[str]) -> None:
    ((result,), shown) = played(f"run={team.path}", "checkpoint=last", "human=plan", typed="R\nL L\n")
    said = [message["said"] for message in result.messages if message["agent"] == "plan"]
    assert said == ["R", "L L"][: len(said)] and result.messages[0]["agent"] == "tool"
    assert shown.count("plan sees:") == len(said)
    assert result.messages[1]["saw"] in shown
    assert capsys.readouterr().out.count("plan> ") == len(said)


def test_people_take_all_seats_of_a_world(played: Play) -> None:
    """No policy speaks: no weights are loaded, so that a base model that does not exist does no harm."""
    bases = 'overrides=["policies.tool.base=nowhere","policies.plan.base=nowhere"]'
    words = ["env=sokoban", "human=[tool,plan]", bases, "world.horizon=1"]
    ((result,), shown) = played(*words, typed="R\nU\n")
    assert [message["said"] for message in result.messages] == ["R", "U"]
    assert "turn 1 of 1" in shown and "solved after 1 turn\n" in shown


def test_a_message_with_a_fence_goes_on_to_its_end(played: Play) -> None:
    words = ["env=sokoban", "human=tool", "silence=[plan]", "world.horizon=1"]
    ((result,), _) = played(*words, typed="R ```\n\nU\n``` x\nL\n")
    assert result.messages[0]["said"] == "R ```\n\nU\n``` x"


def test_a_server_speaks(team: Run, played: Play, chat_server: Any) -> None:
    chat_server.script = lambda messages, seed: "R \x1b[2J"
    words = [
        f"run={team.path}",
        "checkpoint=last",
        f"agents.tool={chat_server.url}",
        "silence=[plan]",
        "world.horizon=1",
    ]
    ((result,), shown) = played(*words, "checkpoint=last")
    assert result.messages[0]["said"] == "R \x1b[2J" and "\x1b" not in shown and "tool: R ␛[2J" in shown
    (request,) = chat_server.seen
    assert request["model"] == "tool" and request["messages"][-1]["content"] == result.messages[0]["saw"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], r"give one of run=DIR, .* exp=NAME, .* or env=NAME"),
        (["env=sokoban", "exp=sokoban_shared"], "give one of run=DIR"),
        (["env=sokobn"], "env=sokobn is unknown; did you mean sokoban"),
        (["env=sokoban", "human=tol"], r"human=tol: the world has no agent 'tol'; did you mean tool\?"),
        (["env=sokoban", "human=tool", "silence=[tool]"], "human and silence both decide the messages of agent 'tool'"),
        (["env=sokoban", "task=-1"], "task must be a whole number of at least 0, got -1"),
        (["env=sokoban", "tasks=0"], "tasks must be a whole number of at least 1, got 0"),
        (["env=sokoban", "temperature=[0,1]"], r"one world at one temperature.*: greedy, temperature=1"),
    ],
    ids=str,
)
def test_mistakes_are_named(played: Play, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        played(*words)


def test_an_input_that_ends_too_early_names_the_agent(played: Play) -> None:
    with pytest.raises(InputEndedError, match="the input has ended: there is no message for agent 'plan'"):
        played("env=sokoban", "human=[tool,plan]", typed="R\n")
