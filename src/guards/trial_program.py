"""A program, not a module: reads a tokenizer or a table of tasks, whoever made it, once and within limits.

A tokenizer may multiply a text or search it without end.  The sizes in the footer of a parquet file are claims, one
value in a dictionary may stand in every row, and a page may unfold to gigabytes.  So they are tried in a process of
their own before they are read in the run's.

Standard input: JSON with ``subject``, what its function below takes, and the limits ``memory`` (bytes of address space)
and ``cpu_s`` (null: any time), which hold on Linux.  Standard output: JSON, the reason for a refusal, or "".
"""

import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

MOST, OWN = 8, 100_000
"""Tokens of a prompt, at most: so many per character, and so many beside."""
BATCH = 1024
"""Rows of a table that are held at the same time."""


def main() -> None:
    asked = json.load(sys.stdin)
    subject, memory, cpu_s = (asked.pop(name) for name in ("subject", "memory", "cpu_s"))
    module, refusal = SUBJECTS[subject]
    import_module(module)  # takes address space, for which no file can be blamed
    if sys.platform == "linux":
        import resource

        if cpu_s is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        reason = refusal(**asked)
    except MemoryError:
        reason = f"it needs more than {memory >> 20} MiB"
    print(json.dumps(reason))


def of_tokenizer(tokenizer: str, prompts: Sequence[str]) -> str:
    """The reason not to use ``tokenizer``, the text of its file; "" where there is none.  Raises ``MemoryError``."""
    from tokenizers import Tokenizer

    tokens = Tokenizer.from_str(tokenizer)
    for prompt in prompts:
        try:
            ids = tokens.encode(prompt, add_special_tokens=False).ids
        except BaseException as error:  # a panic of the library is no Exception
            return f"it fails: {error}"
        if len(ids) > OWN + MOST * len(prompt):
            return f"it makes {len(ids)} tokens of {len(prompt)} characters"
    return ""


def of_parquet(path: str, most_bytes: int, most_rows: int) -> str:
    """The reason not to read the file; "" where there is none.  Raises ``MemoryError``, and what the library does."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path, buffer_size=1 << 20) as file:
        if file.metadata.num_rows > most_rows:
            return f"it has {file.metadata.num_rows} rows, of at most {most_rows}"
        size = 0
        for batch in file.iter_batches(BATCH, use_threads=False):
            size += batch.nbytes
            if size > most_bytes:
                return f"it unfolds to more than {most_bytes >> 20} MiB"
    return ""


SUBJECTS: dict[str, tuple[str, Callable[..., str]]] = {
    "tokenizer": ("tokenizers", of_tokenizer),
    "parquet": ("pyarrow.parquet", of_parquet),
}
"""By name: the module that reads it, and the function that refuses it."""

if __name__ == "__main__":
    main()
