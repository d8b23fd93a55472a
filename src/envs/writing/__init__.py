"""Writing: two agents write the two parts of one text at the same time (MAGRPO's writing collaboration)."""

from .articles import ArticleSource, GeneratedPosts
from .world import Writing

__all__ = ["ArticleSource", "GeneratedPosts", "Writing"]
