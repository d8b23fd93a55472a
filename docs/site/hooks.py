"""Hooks of mkdocs (``mkdocs.yml``): links from a page to a file outside of ``docs/`` lead to a page of that file.

The pages link to code, tests and configurations as relative paths, which work wherever the repository is read.  The
site has no repository beside it, so every such file (or folder: a list of its files) becomes a page below ``source/``.
``mermaid.tiny.js``, which draws the diagrams, is the file of the npm package ``@mermaid-js/tiny`` 11.17.2.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
NAV = ("CONTRIBUTING.md", "CHANGELOG.md", "bench/results.md")
"""Files outside of docs/ that mkdocs.yml names."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".jinja": "jinja", ".sh": "bash"}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")
FENCE = re.compile(r"(^ *(`{3,}).*?^ *\2 *$)", re.MULTILINE | re.DOTALL)
WIDE = "---\nhide: [navigation, toc]\nsearch: {exclude: true}\n---\n\n"
DIAGRAM = 'class="mermaid"'
COLUMNS = 7
"""Of a table, from which on its page has the room of the side columns."""
LONG_PAGE, LONG_SECTION = 18_000, 2_000
"""Characters of text: in a long page the long sections are folded, up to a click, a search in the page or a link."""


def on_startup(**_: Any) -> None:
    """Give ``src/`` the name of the package, by which the API pages read it."""
    link = ROOT / "build" / "api" / "troupe"
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(ROOT / "src")


def on_files(files: Files, config: Any) -> Files:
    """Add a page for every file outside of ``docs/`` that a page links to, directly or through another such file."""
    waiting = [target for file in files.documentation_pages() for target in _outside(_path(file), file.content_string)]
    done: set[str] = set()
    while waiting:
        if (path := waiting.pop()) not in done:
            done.add(path)
            text = _text(path)
            files.append(
                File.generated(
                    config,
                    _page(path),
                    content=f"---\nhide: [navigation, toc]\nsearch: {{exclude: true}}\n---\n\n{text}",
                )
            )
            waiting += _outside(path, text)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links out of ``docs/`` lead to their pages."""
    here = _path(page.file)
    if any(line.count(" | ") >= COLUMNS - 1 for line in markdown.splitlines() if line.startswith("| ")):
        page.meta.setdefault("hide", ["navigation", "toc"])

    def moved(link: str) -> str:
        path = _target(here, link)
        inside = _is_page(path) and here.startswith("docs/")
        return link if inside else posixpath.relpath(_page(path), posixpath.dirname(page.file.src_uri) or ".")

    return _with_links(markdown, moved)


def on_page_content(html: str, **_: Any) -> str:
    """Give large diagrams a frame that scrolls, for narrow screens, and fold the long sections of a long page."""
    html = re.sub(r'<pre class="mermaid">.*?</pre>', _framed, html, flags=re.DOTALL)
    if _letters(html) < LONG_PAGE:
        return html
    level = "h2" if html.count("<h2") > 2 else "h3"
    before, *sections = re.split(rf"(?=<{level}\b)", html)
    return before + "".join(map(_folded, sections))


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load the library that draws diagrams where there is one: the theme would fetch it from another server."""
    if DIAGRAM not in output:
        return output
    up = posixpath.relpath("site/mermaid.tiny.js", page.file.url or ".")
    return output.replace("</head>", f'<script src="{up}"></script></head>', 1)


def _letters(html: str) -> int:
    return len(re.sub(r"<[^>]*>", "", html))


def _folded(section: str) -> str:
    heading, end, body = section.partition(f"</{section[1:3]}>")
    if _letters(body) < LONG_SECTION:
        return section
    return f'<details class="section"><summary>{heading}{end}</summary>{body}</details>'


def _framed(diagram: re.Match[str]) -> str:
    large = "flowchart LR" in diagram[0] or diagram[0].count("\n") > 20
    return f'<div class="diagram">{diagram[0]}</div>' if large else diagram[0]


def _path(file: File) -> str:
    """Of a page's source, from the root of the repository."""
    uri = file.src_uri
    return uri.removeprefix("source/").removesuffix(".md") if uri.startswith("source/") else f"docs/{uri}"


def _page(path: str) -> str:
    """The page of a file of the repository, from ``docs/``."""
    return path.removeprefix("docs/") if _is_page(path) else f"source/{path}.md"


def _is_page(path: str) -> bool:
    """Whether mkdocs has a page or a picture of it already."""
    return path.startswith("docs/") and not path.endswith(".py")


def _target(here: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(here), link))


def _outside(here: str, text: str) -> Iterator[str]:
    """The files outside of ``docs/`` that ``text`` links to; those of ``mkdocs.yml`` too."""
    yield from NAV
    for part in FENCE.split(text)[::3]:
        for link in LINK.findall(part):
            path = _target(here, link)
            if not _is_page(path) and not path.startswith("..") and (ROOT / path).exists():
                yield path


def _with_links(text: str, moved: Callable[[str], str]) -> str:
    """``text`` with other links; code blocks stay."""
    parts = FENCE.split(text)
    for i in range(0, len(parts), 3):
        parts[i] = LINK.sub(lambda match: moved(match[1]), parts[i])
    return "".join(part for i, part in enumerate(parts) if i % 3 != 2)


def _text(path: str) -> str:
    """The page of a file or folder."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(each.name for each in file.iterdir() if not each.name.startswith(("__", ".")))
        return f"# {path}/\n\n" + "\n".join(f"- [{name}]({file.name}/{name})" for name in names)
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        return text
    return f'# {path}\n\n````` {LANGUAGES.get(file.suffix, "text")} linenums="1"\n{text}\n`````\n'
