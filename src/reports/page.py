"""What all pages have in common: templates, styles, scripts, and a policy that forbids everything else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..errors import number_of
from .charts import number, percent
from .values import duration

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class PageFiles:
    """A page's template, its style sheets, and its scripts: each group of files in a scope of its own."""

    template: str
    styles: Sequence[str]
    scripts: Sequence[Sequence[Path]]


RUN_PAGE = PageFiles(
    "report.html.jinja",
    ("report.css", "explorer.css"),
    ([TEMPLATES / "report.js"], sorted((TEMPLATES / "explorer").glob("*.js"))),
)
SETTINGS_PAGE = PageFiles(
    "comparison.html.jinja",
    ("report.css", "comparison.css"),
    ([TEMPLATES / "report.js"], [TEMPLATES / "comparison.js"]),
)


def render_page(files: PageFiles, **content: Any) -> str:
    """The page of ``files`` with ``content``; what a model wrote is escaped."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"number": number, "percent": percent, "duration": duration, "number_of": number_of}
    environment.trim_blocks = environment.lstrip_blocks = True
    groups = ["\n".join(file.read_text(encoding="utf-8") for file in group) for group in files.scripts]
    script = "\n".join(f'(() => {{\n"use strict";\n{text}}})();' for text in groups)
    page = environment.get_template(files.template).render(
        style="\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in files.styles),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **content,
    )
    return page.encode("utf-8", "backslashreplace").decode()  # half characters can stand in JSON, not in a file
