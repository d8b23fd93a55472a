"""A program, not a module: reads a parquet file once, within limits, and counts what it unfolds to.

The sizes in a footer are claims, one value in a dictionary may stand in every row, and a page may unfold to gigabytes.
So the rows are read in a process of their own before they are read in the run's.

Arguments: the file, the bytes that its rows may have, the number of rows, and bytes of address space, which hold on
Linux.  Standard output: the reason for a refusal, or nothing.
"""

import sys

from pyarrow.parquet import ParquetFile

BATCH = 1024
"""Rows that are held at the same time."""


def main(path: str, most_bytes: int, most_rows: int, memory: int) -> None:
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    with ParquetFile(path, buffer_size=1 << 20) as file:
        if file.metadata.num_rows > most_rows:
            print(f"it has {file.metadata.num_rows} rows, of at most {most_rows}")
            return
        size = 0
        for batch in file.iter_batches(BATCH, use_threads=False):
            size += batch.nbytes
            if size > most_bytes:
                print(f"it unfolds to more than {most_bytes >> 20} MiB")
                return


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
