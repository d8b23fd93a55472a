"""Every documented command is run, with a tiny budget: ``make test-docs``.

``NOT_RUN`` and ``DRY`` are the exceptions, each with its reason; a pattern that fits no command is an error.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from datasets import Dataset

from .documented_commands import ROOT, Command, block_commands, scripts, troupe_words
from .processes import until
from .test_scales import APPS, rows, write_tiny

pytestmark = pytest.mark.docs

NOT_RUN = {
    r"^make setup|^pip install|-m pip install|pre-commit install": "installs packages",
    r"^make test\b|^make lint": "the tests and checks themselves, which .ci/run runs",
    r"^make test-gpu|vllm-gpu": "needs a GPU",
    r"^make test-vllm|^vllm serve|^make serve|^curl ": "needs vLLM: tests/cli/test_serve.py does it with vLLM",
    r"^hf download|^make smollm2_q4": "downloads a model",
    r"^make play .*(human=|http:)": "needs a person or a server: tests/cli/test_play.py has both",
    r"^make push-to-hub (?!.*dry_run)": "uploads: a dry run is another command",
    r"launcher=submitit ": "needs Slurm",
}
DRY = {
    r"scale=paper": "needs a GPU, and downloads models: a dry run",
    r"scale=smollm2": "needs a base model that is not shipped: a dry run",
    r"engine=vllm": "needs vLLM: a dry run",
    r"execution=ray": "needs Ray: make test-ray trains with it; a dry run",
    r"strategy=deepspeed": "needs DeepSpeed: make test-deepspeed trains with it; a dry run",
    r"policies\.tool=\[laptop,remote\]": "needs a server: a dry run",
    r"sweep=(regime|k|couplet|smollm2)\b": "minutes to hours: a dry run; sweep=seeds is run",
}
LISTS = {"make sweep": "  seeds", "make reproduce": "  role_swap"}
"""Commands that list what they could do, and one of the list."""
TINY = ["loop.iterations=1", "loop.tasks_per_iteration=2", "loop.validation_tasks=2", "loop.test_tasks=2"]
DEMO = "runs/demo"
READERS = {
    r"\.venv/bin/": f"{Path(sys.executable).parent}/",
    r"runs/sokoban_specialized/[AB]\b|OTHER_DIR": DEMO,
    r"test_00010/3": "test_00001/0",
    r"train_00005/0": "train_00000/0",
    r"\bturn=2": "turn=1",
    r"\bnode=2": "node=1",
    r"\bcandidate=3": "candidate=1",
    r"runs/sweeps/(?:role_swap|k)/sokoban_specialized": "runs/sweeps/seeds/plan_path_shared",
    r"runs/reproduce/role_swap/laptop": "runs/sweeps/seeds/plan_path_shared",
    r"(?<=resume=)runs/sokoban_\w+/DATE_TIME-\d+": "runs/mine",
    r"runs/sokoban_\w+/DATE_TIME-\d+|(?<=run=)\.\.\.": DEMO,
    r"(?<=base=)(DIR|\.\.\.)": "tiny",
    r"(?<=shared\.base=)tiny": f"{DEMO}/checkpoints/last/tool",
    r"^compare DIR DIR$": "compare runs/single runs/single",
    r"\bDIR\b": DEMO,
    r"iteration_00010": "iteration_00001",
    r"(?<=run_dir=)runs/\w+": "runs/${now:%f}",
}
"""What stands for a folder of the reader's, and the folder here."""
OTHERS = {"docs/your_project.md": "tests/cli/test_new.py"}
"""Pages whose commands are steps of one project, and the test that runs them in order."""
COMMANDS = [command for command in block_commands() if command.page not in OTHERS]


ENVIRONMENT = os.environ | {
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYTHONPATH": ".",
    "OMP_NUM_THREADS": "1",
    "WANDB_MODE": "offline",
}


@dataclass(frozen=True)
class Done:
    """What a command has left."""

    command: str
    status: int
    stdout: str
    stderr: str

    def ok(self) -> None:
        assert self.status == 0, f"{self.command}\n{self.stdout[-2000:]}\n{self.stderr[-2000:]}"


def call(text: str, cwd: Path) -> Done:
    """``text`` in a shell, with the Python of this test before others."""
    done = subprocess.run(["bash", "-c", text], cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True)
    return Done(text, done.returncode, done.stdout, done.stderr)


class Troupe:
    """The command ``troupe``, by a process that has imported it."""

    def __init__(self, place: Path, out: Path) -> None:
        self.place, self.out = place, out
        worker = [sys.executable, str(ROOT / "tests/documented_worker.py"), str(out)]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(worker, cwd=place, env=ENVIRONMENT, text=True, **pipes)

    def __call__(self, *words: str) -> Done:
        if "strategy=ddp" in words:  # it starts its second process by the command line of the first
            return call(shlex.join([sys.executable, "-m", "troupe", *words]), self.place)
        assert self.process.stdin and self.process.stdout
        print(json.dumps({"words": words, "cwd": str(self.place)}), file=self.process.stdin, flush=True)
        status = int(self.process.stdout.readline())
        return Done(shlex.join(words), status, *((self.out / name).read_text() for name in ("stdout", "stderr")))


@pytest.fixture(scope="module")
def troupe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Troupe]:
    """In the reader's folder, with the runs, evaluations, models and files that the pages speak of."""
    troupe = Troupe(place := tmp_path_factory.mktemp("reader"), tmp_path_factory.mktemp("out"))
    troupe("train", "experiment=sokoban_specialized", f"run_dir={DEMO}", "loop.checkpoint.every=1", *TINY).ok()
    for copy in ("runs/a", "runs/b", "runs/single", "runs/sokoban_specialized/one"):
        shutil.copytree(place / DEMO, place / copy)
    troupe("eval", "run=runs/single", "tasks=2").ok()
    for name, *keys in [
        ("base-test-262ac0e9c766", "checkpoint=base", "temperature=1", "tasks=2"),
        ("last-test-d1013e02320f", "checkpoint=last", "temperature=1", "tasks=2"),
        ("last-test-8f7bf9a93074", "checkpoint=last", "tasks=2"),
        ("last-test-72edc6c43cf6", "checkpoint=last", "temperature=1", "tasks=1"),
    ]:
        troupe("eval", f"run={DEMO}", f"name={name}", *keys).ok()
    troupe("sweep", "sweep=seeds", "experiment=plan_path_shared", "seed=0", *TINY).ok()
    write_tiny(place / "tiny")
    rows(place / "my_train.jsonl", 2000, lambda n: APPS | {"question": f"Double it. {n}."})
    Dataset.from_list([APPS | {"question": f"Twice. {n}."} for n in range(300)]).to_parquet(place / "my_test.parquet")
    sums = [{"problem": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(600)]
    Dataset.from_list(sums).to_parquet(place / "polaris.parquet")
    (place / "mine").mkdir()
    for page, module, config in (
        ("add_an_algorithm", "median", "algorithm/median"),
        ("add_an_engine", "engine", "engine/generate"),
    ):
        text = (ROOT / f"docs/{page}.md").read_text()
        code, yaml = (re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "yaml"))
        assert code and yaml
        (place / f"mine/{module}.py").write_text(code[1])
        (place / "conf" / config).parent.mkdir(parents=True)
        (place / f"conf/{config}.yaml").write_text(yaml[1].replace("troupe.algorithms.credit.median", "mine.median"))
    with troupe.process:
        yield troupe
        assert troupe.process.stdin
        troupe.process.stdin.close()


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_it_runs(command: Command, troupe: Troupe) -> None:
    for pattern, reason in NOT_RUN.items():
        if re.search(pattern, command.text):
            pytest.skip(reason)
    words = troupe_words(command.text)
    if command.text in LISTS:
        done = call(command.text, ROOT)
        assert done.status == 2 and "=NAME" in done.stderr and LISTS[command.text] in done.stderr
    elif command.text.startswith("torchrun"):
        run = f"{sys.executable} -m torch.distributed.run"
        call(f"{command.text.replace('torchrun', run)} {shlex.join(TINY)} run_dir=runs/torchrun", troupe.place).ok()
    elif words is None:
        call(mine(command.text), troupe.place).ok()
    elif "resume=" in command.text:
        shutil.copytree(troupe.place / DEMO, troupe.place / "runs/mine")
        troupe(*tiny(mine(shlex.join(words)), command.text)).ok()
        shutil.rmtree(troupe.place / "runs/mine")
    elif command.refused:
        done = troupe(*tiny(mine(shlex.join(words)), command.text))
        assert done.status != 0 and done.stderr.startswith("error: ")
    else:
        troupe(*tiny(mine(shlex.join(words)), command.text)).ok()


def mine(text: str) -> str:
    """``text`` with the folders of :func:`place`."""
    for pattern, folder in READERS.items():
        text = re.sub(pattern, folder, text)
    return text


def tiny(text: str, asked: str) -> list[str]:
    """The words with a budget of seconds."""
    name, *words = shlex.split(text)
    if name == "eval":
        return [name, *words, "tasks=2"]
    if name == "warm-start":
        return [name, *words, "steps=2", "validation_tasks=2"]
    if name == "reproduce":  # tests/cli/test_reproduce.py runs a table
        return [name, *words, "dry_run=true"]
    if name not in ("train", "sweep"):
        return [name, *words]
    if any(re.search(pattern, asked) for pattern in DRY):
        return [name, *words, "dry_run=true"]
    if "resume" in text:
        return [name, *words, "loop.iterations=2"]
    return [name, *words, *TINY, *(["seed=0"] if name == "sweep" else [])]


def test_the_example_of_the_gateway_starts_as_it_is_written(troupe: Troupe) -> None:
    """With a base model that needs no download."""
    text = (ROOT / "docs/gateway.md").read_text(encoding="utf-8")
    files = dict(re.findall(r"^`([\w/]+\.(?:py|yaml))`:\n\n```\w+\n(.*?)```", text, re.MULTILINE | re.DOTALL))
    assert set(files) == {"my_team.py", "configs/env/my_team.yaml", "configs/policy/qwen3.yaml"}
    policy = files["configs/policy/qwen3.yaml"]
    files["configs/policy/qwen3.yaml"] = policy.replace("Qwen/Qwen3-0.6B", "tiny")
    assert "base: tiny" in files["configs/policy/qwen3.yaml"]
    for name, content in files.items():
        (troupe.place / name).parent.mkdir(parents=True, exist_ok=True)
        (troupe.place / name).write_text(content)
    (command,) = re.findall(r"`PYTHONPATH=\. troupe (train .*env=my_team .*)`", text)
    troupe(*shlex.split(command), "dry_run=true").ok()


@pytest.mark.parametrize("script", scripts("docs/slurm.md"))
def test_scripts_of_slurm_train_and_continue(script: str, tmp_path: Path) -> None:
    text = scripts("docs/slurm.md")[script].replace(".venv/bin/troupe", f"{sys.executable} -m troupe")
    text = text.replace("run_dir=", f"{shlex.join(TINY)} run_dir=").replace("=ddp", "=ddp strategy.accelerator=cpu")
    (tmp_path / "srun").write_text(SRUN)
    (tmp_path / "srun").chmod(0o755)
    tasks = 2 if "--ntasks-per-node" in text else 1
    slurm = {
        "SLURM_JOB_NAME": "first",
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NNODES": "1",
        "SLURM_NTASKS": str(tasks),
        "SLURM_NTASKS_PER_NODE": str(tasks),
        "SLURM_NODELIST": "127.0.0.1",
    }
    exports = "".join(f"export {name}={value}\n" for name, value in slurm.items())
    call(f"{exports}PATH=$PWD:$PATH\n{text}", tmp_path).ok()
    assert (tmp_path / "runs/first/summary.json").exists()
    again = call(f"{exports}PATH=$PWD:$PATH\n{text}", tmp_path)
    assert again.status != 0 and "resume=runs/first: the run has finished" in again.stderr


SRUN = """#!/bin/bash
# Starts what Slurm's srun starts: one process per task, each with its number.  With --nodes it has a task on each.
trap 'kill $(jobs -p)' TERM
while [[ $1 == --* ]]; do
  case $1 in --nodes=*) SLURM_NTASKS=${1#*=} ;; esac
  shift
done
for ((task = 0; task < SLURM_NTASKS; task++)); do
  SLURM_PROCID=$task SLURM_LOCALID=$task SLURM_NODEID=0 "$@" &
done
status=0
for job in $(jobs -p); do wait "$job" || status=$?; done
exit $status
"""


CLUSTER = {
    "srun": SRUN,
    "scontrol": "#!/bin/bash\n[ \"$*\" = 'show hostnames node[1-2]' ] && printf 'node1\\nnode2\\n'\n",
    "hostname": "#!/bin/bash\necho '10.0.0.1 fe80::1'\n",
    "ray": """#!/bin/bash
# Notes each call, but the questions for which the head, which takes a second to start, is too young.
case $1 in
  start) echo "$RAY_AUTH_MODE $RAY_ADDRESS: $*" >> calls
    [ "$2" != --head ] || { sleep 1; touch head; }
    exec sleep 600 ;;
  health-check) [ -e head ] && echo "$*" >> calls ;;
esac
""",
}
"""What the script of a Ray cluster calls, as two nodes of Slurm's would answer."""
JOB_ENDS = "trap 'kill $(jobs -p) || true' EXIT\n"  # and so do its steps, by Slurm


def ray_script(folder: Path, troupe: str) -> str:
    """The script of a Ray cluster, with stand-ins for the cluster in ``folder``."""
    for name, content in CLUSTER.items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)
    text = scripts("docs/scaling.md")["ray.sh"].replace(".venv/bin/ray", "ray").replace(".venv/bin/troupe", troupe)
    slurm = {"SLURM_JOB_NAME": "first", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "node[1-2]"}
    exports = "".join(f"export {name}={value}\n" for name, value in slurm.items())
    return f"{exports}PATH=$PWD:$PATH\n{JOB_ENDS}{text}"


def test_the_script_of_a_ray_cluster_trains_and_continues(tmp_path: Path) -> None:
    """The cluster is a stand-in, so that the run is local; what it would do on Ray is a dry run."""
    text = ray_script(tmp_path, f"{sys.executable} -m troupe")
    (on_ray,) = re.findall(r"execution=ray[^)]*", text)
    local = text.replace(on_ray, shlex.join(TINY))
    call(local, tmp_path).ok()
    assert (tmp_path / "runs/first/summary.json").exists()
    assert (tmp_path / "calls").read_text().splitlines() == [
        "token 10.0.0.1:6379: start --head --port=6379 --block",
        "health-check --address 10.0.0.1:6379",
        "token 10.0.0.1:6379: start --address=10.0.0.1:6379 --block",
    ]
    again = call(local, tmp_path)
    assert again.status != 0 and "resume=runs/first: the run has finished" in again.stderr
    shutil.rmtree(tmp_path / "runs")
    dry = call(text.replace(on_ray, f"{on_ray} dry_run=true"), tmp_path)
    dry.ok()
    assert gpus(dry) <= 4 * 8


def test_the_script_of_a_ray_cluster_leaves_a_checkpoint_before_the_time_is_over(tmp_path: Path) -> None:
    """The batch shell gets SIGTERM; it hands it on, and waits for the run."""
    (tmp_path / "train").write_text("trap 'sleep 0.5; touch left; exit 1' TERM\ntouch begun\nsleep 60 & wait\n")
    with subprocess.Popen(["bash", "-c", ray_script(tmp_path, "bash train")], cwd=tmp_path, env=ENVIRONMENT) as job:
        try:
            asyncio.run(until((tmp_path / "begun").exists))
            job.terminate()
            assert job.wait(timeout=60) != 0
        finally:
            job.kill()
    assert (tmp_path / "left").exists()


def test_the_job_for_kubernetes_is_yaml_and_its_keys_compose(tmp_path: Path) -> None:
    """Its groups of nodes have what the run asks for, mount the volumes that there are, and Ray's tested version."""
    (text,) = re.findall(r"```yaml\n(apiVersion: ray\.io.*?)```", (ROOT / "docs/scaling.md").read_text(), re.DOTALL)
    job = yaml.safe_load(text)
    cluster = job["spec"]["rayClusterSpec"]
    assert job["kind"] == "RayJob" and f"ray=={cluster['rayVersion']}" in (ROOT / "constraints.txt").read_text()
    there = 0
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
        there += group.get("replicas", 1) * container["resources"]["limits"].get("nvidia.com/gpu", 0)
    program, *words = shlex.split(job["spec"]["entrypoint"])
    assert program == "troupe"
    dry = call(shlex.join([sys.executable, "-m", "troupe", *words, f"run_dir={tmp_path}", "dry_run=true"]), tmp_path)
    dry.ok()
    assert gpus(dry) <= there


def gpus(dry: Done) -> int:
    """How many a dry run asks Ray for."""
    (number,) = re.findall(r"Ray keeps \d+ CPUs and (\d+) GPUs", dry.stdout)
    return int(number)


@pytest.mark.parametrize("pattern", [*NOT_RUN, *DRY])
def test_the_exceptions_are_needed(pattern: str) -> None:
    assert any(re.search(pattern, command.text) for command in COMMANDS)
