"""The identity of an evaluation: the same for the same episodes, wherever the weights lie."""

from pathlib import Path

from troupe.envs.couplet.world import Couplet
from troupe.evaluation.assignment import SILENCE, Assignment, LocalPolicy
from troupe.evaluation.conditions import Condition
from troupe.evaluation.episodes import EchoActor
from troupe.evaluation.identity import evaluation_identity, source_identity, weights_digest
from troupe.evaluation.request import EvalRequest
from troupe.experience import Sampling

SAMPLING = Sampling(temperature=1.0, max_tokens=40)


def folder(path: Path, content: bytes) -> str:
    path.mkdir()
    (path / "model.safetensors").write_bytes(content)
    return str(path)


def test_weights_are_known_by_content_not_by_place(tmp_path: Path) -> None:
    folders = [folder(tmp_path / name, content) for name, content in (("a", b"1"), ("b", b"1"), ("c", b"2"))]
    a, b, c = map(weights_digest, folders)
    assert a == b != c
    assert weights_digest("Qwen/Qwen3-1.7B") == "Qwen/Qwen3-1.7B"


def test_what_decides_the_messages_of_a_source() -> None:
    digests = {"w": "1", "m": "2"}
    plain = source_identity(LocalPolicy("checkpoint", "t", "w", SAMPLING), 0, digests)
    assert plain["weights"] == "1" and plain["sampling"]["temperature"] == 0.0
    other_key = LocalPolicy("agents.tool", "u", "w", SAMPLING, configured_as="x")
    assert source_identity(other_key, 0, digests) == plain
    chat = LocalPolicy("checkpoint", "t", "w", SAMPLING, chat={"enable_thinking": False})
    assert source_identity(chat, 0, digests) == plain | {"chat": {"enable_thinking": False}}
    assert source_identity(LocalPolicy("checkpoint", "t", "w", SAMPLING, "m"), 0, digests) == plain | {"below": "2"}
    assert source_identity(LocalPolicy("checkpoint", "t", "w", SAMPLING), "own", digests) != plain
    assert source_identity(SILENCE, 0, {}) == {"silence": True}
    assert source_identity(EchoActor("tool"), 0, {}) == {"echo": "tool"}


def test_tables_that_a_world_names_are_known_by_content(tmp_path: Path) -> None:
    table = tmp_path / "questions.jsonl"
    world_config = {"data": {"test": [{"path": str(table)}]}, "wording": "long " * 1000}
    condition = Condition("a", world_config, Couplet(), [], {"first": SILENCE, "second": SILENCE}, "own", 1)
    request = EvalRequest(checkpoint="base", split="test", tasks=1, samples=1, temperature=("own",), seed=0)
    identities = []
    for content in ("1", "1", "22"):  # of another size: a digest is kept while size and time stay
        table.write_text(content)
        identities.append(evaluation_identity(request, [condition]))
    assert identities[0] == identities[1] != identities[2]


def test_an_evaluation_is_its_worlds_tasks_seed_and_sources(tmp_path: Path) -> None:
    def identity(
        name: str, tasks: int = 2, samples: int = 1, task_seed: int = 0, **world_config: int
    ) -> dict[str, object]:
        weights = folder(tmp_path / name, b"1")
        assignment: Assignment = {"first": LocalPolicy("checkpoint", name, weights, SAMPLING), "second": SILENCE}
        condition = Condition(name, world_config, Couplet(), [], assignment, "own", samples)
        request = EvalRequest(
            checkpoint="last",
            split="test",
            tasks=tasks,
            samples=samples,
            temperature=("own",),
            seed=0,
            task_seed=task_seed,
        )
        return evaluation_identity(request, [condition])

    first = identity("a", horizon=2)
    assert identity("b", horizon=2) == first
    others = [identity("c", horizon=3), identity("d", tasks=3, horizon=2), identity("e", samples=2, horizon=2)]
    others.append(identity("f", task_seed=1, horizon=2))
    assert all(other != first for other in others)
