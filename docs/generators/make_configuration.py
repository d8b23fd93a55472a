"""Write ``configuration.md``, the page of every group and key, from ``configs/`` and the docstrings that it names.

``make docs`` writes it; ``tests/test_documentation.py`` checks that it was written.
"""

from __future__ import annotations

import inspect
import re
from abc import ABC
from pathlib import Path
from typing import Any

from hydra.utils import get_object

HERE = Path(__file__).parent
CONFIGS = HERE.parent.parent / "configs"
GROUPS = {
    "debug": "What a run is made small with, and what it shows then.",
    "env": "The world.",
    "regime": "The rule that makes policies of a world's agents: `docs/policies.md`.",
    "algorithm": "Sampler, credit rule, objective and update; `parts/` holds what several share.",
    "scale": "Which models, and how much of everything.",
    "policy": "What a policy is at a scale: base model, optimizer, scheduler, sampling.",
    "engine": "What generates.",
    "strategy": "How each pool runs on its devices.",
    "execution": "Where pools, engines and worlds are: `docs/scaling.md`.",
    "faults": "What happens where an episode is lost, or a logger: `docs/reliability.md`.",
    "diagnostics": "What is measured beside training, and where an alarm is raised: `docs/diagnostics.md`.",
    "logger": "Where metrics go besides `metrics.jsonl`.",
    "callbacks": "Code around rollouts, updates and iterations: `docs/your_project.md`.",
    "benchmarks": "Published test sets, for the key `benchmark` of `troupe eval`: `docs/evaluation.md`.",
    "sweep": "Named sweeps, `make sweep sweep=NAME`.",
    "reproduce": "Tables of the papers, `make reproduce table=NAME`: [reproduction](reproduction.md).",
}
HEAD = """# Configuration

Written by `make docs` from `configs/` and the classes that it names; edit those.

A run is composed by Hydra from one file per group. `make train exp=WORLD_REGIME` chooses a world of `env/`, a regime
and their algorithm, and needs no file; `make train exp=NAME key=value ...` overrides any key:
`make train exp=NAME algorithm.sampler.k=8 regime=shared`. An unknown key, a choice that does not exist or a combination
that cannot run is an error at start that names it. `args="--cfg job"` prints the composition and ends; `dry_run=true`
prints what the run would do.

## Files of your own

A folder of your own has the same groups as `configs/`: `DIR/env/mine.yaml`, `DIR/experiment/mine.yaml`,
`DIR/sweep/mine.yaml`. Every command finds it (`train`, `eval exp=NAME`, `sweep`, dry runs), in one of three ways:

- `--config-dir DIR`, for one folder;
- `hydra.searchpath=[DIR,pkg://lab.conf]`, for several, and for folders in Python packages;
- a Hydra [`SearchPathPlugin`](https://hydra.cc/docs/advanced/search_path/) of an installed package, with which no
  command needs a word more.

A file with the name of one of Troupe's (`DIR/env/sokoban.yaml`) is refused, with both paths, because Hydra would read
only one of the two. To change one of Troupe's files, extend it under another name: `defaults: [sokoban, _self_]` in
`DIR/env/my_sokoban.yaml`.
"""


def page() -> str:
    """The page's text."""
    unknown = {f.name for f in CONFIGS.iterdir() if f.is_dir() and not f.name.startswith("__")} - set(GROUPS)
    if unknown:
        raise ValueError(
            f"configs/{sorted(unknown)[0]} is a group that docs/generators/make_configuration.py does not describe"
        )
    parts = [HEAD]
    for name in ("train.yaml", "eval.yaml", "serve.yaml", "gateway.yaml"):
        if (CONFIGS / name).exists():
            parts += [f"## {name}\n", _yaml(CONFIGS / name)]
    targets: set[str] = set()
    for group, about in GROUPS.items():
        files = sorted((CONFIGS / group).rglob("*.yaml"))
        if not files:
            continue
        parts.append(f"## {group}\n\n{about}\n")
        for file in files:
            parts += [f"### {group}={file.relative_to(CONFIGS / group).with_suffix('')}\n", _yaml(file)]
            targets |= set(re.findall(r"_target_: (troupe\.[\w.]+\w)", file.read_text(encoding="utf-8")))
    targets |= {f"troupe.setup.declarations.{name}" for name in ("World", "Solo", "Regime")}
    objects = {member for target in targets for member in _family(get_object(target))}
    parts.append("## What the keys mean\n")
    parts += [_describe(member) for member in sorted(objects, key=_name)]
    return "\n".join(parts).rstrip() + "\n"


def _yaml(file: Path) -> str:
    return f"```yaml\n{file.read_text(encoding='utf-8').strip()}\n```\n"


def _family(target: Any) -> list[Any]:
    """``target`` and the classes that it inherits arguments from; not the abstract ones at the root."""
    if not inspect.isclass(target):
        return [target]
    return [c for c in target.__mro__ if c.__module__.startswith("troupe.") and ABC not in c.__bases__]


def _name(member: Any) -> str:
    return f"{member.__module__}.{member.__qualname__}".removeprefix("troupe.")


def _describe(member: Any) -> str:
    """Heading, docstring, and where inherited arguments are described."""
    bases = [f"`{_name(base)}`" for base in _family(member)[1:]]
    text = re.sub(r"``(.+?)``", r"`\1`", re.sub(r":\w+:`[~.!]?(.+?)`", r"`\1`", inspect.cleandoc(member.__doc__ or "")))
    more = f"\n\nSee also {', '.join(bases)}." if bases else ""
    return f"### {_name(member)}\n\n{text}{more}\n"


if __name__ == "__main__":
    (HERE.parent / "configuration.md").write_text(page(), encoding="utf-8")
