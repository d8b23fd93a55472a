"""A process that has imported the commands, and forks one child per command: imports take longer than tiny runs.

Reads lines of JSON, ``{"words": [...], "cwd": ...}``, and answers each with the child's status; its output is in the
files ``stdout`` and ``stderr`` of the folder that is the argument.
"""

import json
import os
import sys
import traceback
from pathlib import Path

from troupe.cli import compare, eval, play, report, reproduce, runs, sweep, train  # noqa: F401  (once, for all children)
from troupe.cli.main import main


def child(words: list[str], cwd: str, out: Path) -> None:
    """Run ``troupe WORDS`` as the console script does; does not return."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(out / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.chdir(cwd)
    sys.path.insert(0, cwd)
    sys.argv = ["troupe", *words]
    status = 0
    try:
        main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            child(**json.loads(line), out=Path(sys.argv[1]))
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
