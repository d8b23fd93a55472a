"""An extension of griffe, which reads the docstrings of the API pages: their reStructuredText becomes Markdown."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":\w+:`~?!?\.*([^`]+)`")
TABLE = re.compile(r"^=+ +=+\n((?:.+\n)+?)=+ +=+$", re.MULTILINE)
ROW = re.compile(r"^(\S+) +(.*)$", re.MULTILINE)


def markdown(text: str) -> str:
    """``text`` with Markdown in place of roles, literal blocks and tables of two columns."""
    text = TABLE.sub(lambda match: "| | |\n| --- | --- |\n" + ROW.sub(r"| \1 | \2 |", match[1]), text)
    text = ROLE.sub(lambda match: f"`{match[1].rpartition('.')[2]}`", text)
    return re.sub(r"::$", ":", text, flags=re.MULTILINE)


class Docstrings(Extension):
    """Applies :func:`markdown` to every docstring."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
