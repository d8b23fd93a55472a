"""The model card of a trained team, written from the files of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..runs.files import RunDirectoryError
from ..runs.run import RunReader

TEMPLATE = Path(__file__).parent / "templates"
SCORES = {"base": "eval_before", "last": "eval", "best": "eval_best"}
"""Checkpoint to the prefix of its keys in ``summary.json``."""


@dataclass(frozen=True)
class PublishedPolicy:
    """One policy as the card lists it.

    ``folder`` is that of its weights in the repository; None where they are those of ``base``, or behind a server.
    ``base`` is the base model's name on the hub, or where there is none ``base_folder`` its folder in the repository,
    if it is needed; ``base_label`` is what the card calls it.
    """

    name: str
    agents: Sequence[str]
    tuning: str
    base_label: str
    folder: str | None = None
    base: str | None = None
    base_folder: str | None = None


def model_card(
    run: RunReader, repo: str, checkpoint: str, policies: Sequence[PublishedPolicy], license: str | None = None
) -> ModelCard:
    """The card of ``run`` at ``checkpoint``, to be the README.md of ``repo``.

    Raises :class:`~troupe.runs.files.RunDirectoryError` where the summary lacks the success before or after training.
    """
    before, after = _score(run, "base"), _score(run, checkpoint)
    world = _class_name(run.config["env"]["_target_"])
    bases = sorted({policy.base for policy in policies if policy.base is not None})
    data = ModelCardData(
        license=license,
        library_name="peft" if any(policy.tuning == "lora" for policy in policies) else "transformers",
        pipeline_tag="text-generation",
        base_model=bases or None,
        tags=["troupe", "multi-agent", "reinforcement-learning"],
        model_name=repo.rpartition("/")[2],
        eval_results=[
            EvalResult(
                task_type="text-generation",
                task_name=f"{world}, played by the team",
                dataset_type=f"troupe/{world.lower()}",
                dataset_name=f"{world}, {after['episodes']} held-out tasks",
                dataset_split="test",
                metric_type="success",
                metric_name="success, one sampled episode per task",
                metric_value=after["success"],
            )
        ],
    )
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,  # the hub shows HTML in a card
        finalize=_one_line,
    )
    text = environment.get_template("model_card.md.jinja").render(
        repo=repo,
        checkpoint=checkpoint,
        world=world,
        name=run.config.get("name", world),
        algorithm={part: _class_name(run.config["algorithm"][part]["_target_"]) for part in PARTS},
        k=run.config["algorithm"]["sampler"].get("k"),
        policies=policies,
        before=before,
        after=after,
        summary=run.summary,
        seed=run.config["seed"],
        version=run.versions.get("troupe", "unknown"),
        settings=Markup(yaml.safe_dump(_scalars(run.config["env"]), sort_keys=False).strip().replace(FENCE, "")),
    )
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}")


PARTS = ("sampler", "credit", "objective")
FENCE = "`" * 3
"""Ends a block of code."""


def _score(run: RunReader, checkpoint: str) -> dict[str, Any]:
    """Success of ``checkpoint`` on the test tasks, its interval, turns and number of episodes."""
    prefix = SCORES[checkpoint]
    keys = ("success", "success_ci95", "turns", "episodes")
    missing = [f"{prefix}/{key}" for key in keys if f"{prefix}/{key}" not in run.summary]
    if missing:
        raise RunDirectoryError(
            f"{run.path} has no {missing[0]}, which the model card reports: its status is {run.status or 'unknown'}, "
            "and only a run that went to its end is evaluated"
        )
    return {key: run.summary[f"{prefix}/{key}"] for key in keys}


def _one_line(value: object) -> object:
    """A text of a configuration in one line, where it could go on as another part of the card."""
    return " ".join(value.split()) if isinstance(value, str) and not isinstance(value, Markup) else value


def _class_name(target: object) -> str:
    return str(target).rpartition(".")[2]


def _scalars(section: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of ``section``: no nested section, which may hold paths of a machine."""
    return {
        key: value
        for key, value in section.items()
        if isinstance(value, bool | int | float | str) and not key.startswith("_")
    }
