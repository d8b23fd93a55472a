"""One process needs no agreement; tests/test_ddp.py has two."""

import pytest

from troupe.models.learning.ranks import Ranks, ResultCountError


async def test_one_process_does_everything() -> None:
    async def doubled(tasks: list[int]) -> list[int]:
        return [2 * task for task in tasks]

    ranks = Ranks()
    assert ranks.first
    assert await ranks.share([1, 2, 3], doubled) == [2, 4, 6]
    assert ranks.from_first("here") == "here" and ranks.from_all("here") == ["here"]
    assert ranks.agreed(lambda: 5) == 5


@pytest.mark.parametrize("results", [[1, 2], [1, 2, 3, 4]])
async def test_every_task_has_one_result(results: list[int]) -> None:
    async def play(tasks: list[int]) -> list[int]:
        return results

    with pytest.raises(ResultCountError, match=rf"3 tasks were played, and {len(results)} results came of it"):
        await Ranks().share([1, 2, 3], play)


def test_an_error_is_raised_as_it_is() -> None:
    def fail() -> None:
        raise KeyError("x")

    ranks = Ranks()
    with pytest.raises(KeyError, match="x"):
        ranks.agreed(fail)
