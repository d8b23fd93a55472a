"""A coding agent that knows nothing of Troupe, mini-swe-agent, on a repository whose tests are the reward.

The commands are a model's: they run as `nobody` where Troupe runs as root, else as who runs it; use a container.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path
from tempfile import TemporaryDirectory

from troupe.envs.workflow import ClientForAgent
from troupe.experience import Split, Task

OPERATIONS = {"plus": "+", "minus": "-", "times": "*"}
TESTS = ("f(0, 0) == 0", "f(4, 2) == 4 {sign} 2", "f(3, 5) == 3 {sign} 5", "f(7, 7) == 7 {sign} 7")
CONFIG = {
    "agent": {
        "system_template": "You write one bash command per message, in a block ```mswea_bash_command.",
        "instance_template": "{{task}}",
        "step_limit": 2,
        "mode": "yolo",
    },
    "model": {
        "model_class": "litellm_textbased",
        "format_error_template": "Give one block ```mswea_bash_command.",
        "observation_template": "{{output.output}}",
    },
}
RIGHTS = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


def tasks(split: Split, count: int, seed: int) -> list[Task]:
    """Of each split other names of the file."""
    names = [f"{split}_{i}" for i in range(-(-count // len(OPERATIONS)))]
    pairs = [(name, word) for name in names for word in OPERATIONS]
    return [Task(f"{name}-{word}", split, {"name": name, "word": word}) for name, word in pairs[:count]]


async def solve(task: Task, client_for_agent: ClientForAgent, mini: str) -> float:
    """The share of the tests that pass when the agent, the program ``mini``, has ended."""
    client, name, sign = client_for_agent("coder"), task.data["name"], OPERATIONS[task.data["word"]]
    with TemporaryDirectory() as folder:
        place = Path(folder)
        (place / f"{name}.py").write_text("def f(a, b):\n    return\n")
        (place / "config.yaml").write_text(json.dumps(CONFIG))
        if RIGHTS:
            for path in (place, *place.iterdir()):
                shutil.chown(path, "nobody", "nogroup")
        said = (
            f"f(a, b) in {name}.py must return a {sign} b. Write the file with this command:\n\n"
            f"```mswea_bash_command\necho 'def f(a, b): return a {sign} b' > {name}.py\n```"
        )
        keys = {"api_base": client.base_url, "api_key": client.api_key}
        options = [f"model.model_kwargs.{key}={value}" for key, value in keys.items()]
        words = ["-y", "--exit-immediately", "-m", f"openai/{client.model}", "-t", said, "-o", "trajectory.json"]
        for option in ("config.yaml", *options):
            words += ["-c", option]
        if await _run(place, mini, *words):
            raise RuntimeError(f"{mini} failed: {(place / 'log.txt').read_text()[-1000:]}")
        tests = [f"from {name} import f; assert {test.format(sign=sign)}" for test in TESTS]
        passed = [await _run(place, str(Path(mini).with_name("python")), "-B", "-c", test) for test in tests]
    return sum(code == 0 for code in passed) / len(tests)


async def _run(place: Path, *command: str) -> int:
    """The exit code of ``command``; cancelled, it is ended with all that it has started."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "MSWEA_GLOBAL_CONFIG_DIR": str(place / "mini")}
    environment |= {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"}
    environment |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}
    with (place / "log.txt").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=place, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, **RIGHTS,
        )  # fmt: skip
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
