"""Make a small base model that can speak in a world, by supervised fine-tuning on the world's demonstrations.

    troupe warm-start env=NAME [env.KEY=VALUE ...] [--config-dir DIR] [steps=600] [hidden=128] [out=bases/NAME]

The world is any with `demonstration`: env=NAME, or that of experiment=NAME.  Its model reads and writes any text.
base=NAME makes a shipped base model again instead.  Ctrl-C keeps what is done, and the same command continues.

Keys of the command:
  out=FOLDER          of the finished model (bases/NAME)
  work=FOLDER         of the unfinished one (OUT.partial)
  again=true          make it although OUT is finished
  steps=N             optimisation steps in all; the recipe's phases keep their shares (600)
  until=N             stop after this step
  vocabulary=N        tokens, at most; 262 are bytes alone (512)
  validation_tasks=N  on which the finished model is measured; 0: none (100)
  threads=N           of torch (1)
  compile=true        use torch.compile (needs a C++ compiler)
Keys of the recipe (src/warm_start/recipe.py):
  hidden layers heads seed stable_steps decay_steps flawed_steps batch_size micro_batches learning_rate
  muon_learning_rate weight_decay warmup expert_share last_expert_share
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..runs.fingerprint import own_code_hash
from ..setup.command_line import end
from ..setup.instantiation import notice
from ..setup.warm_start import ChosenWorld, WarmStartOptions, chosen_world
from .main import loading

if TYPE_CHECKING:
    from ..warm_start.finetune import WarmStart


def run(options: WarmStartOptions, chosen: ChosenWorld | None) -> None:
    """Make the model of the ``chosen`` world, or a shipped one; say so where it is finished.

    Raises ``ValueError`` naming what cannot be made.
    """
    with loading():
        import torch  # the words are checked before this, which takes seconds

        from ..setup.warm_start import curriculum_for
        from ..warm_start.finetune import WarmStart, code_of, export, is_finished
    torch.set_num_threads(options.threads)
    curriculum, origin = curriculum_for(options, chosen)
    out = Path(options.out or f"bases/{options.base or (chosen and chosen.name)}")
    work = Path(options.work or f"{out}.partial")
    code = own_code_hash({"env": chosen.env}) if chosen else ""
    if not options.again and is_finished(out, curriculum.recipe, origin):
        other = "" if code_of(out) == code else ", with other code of the world than today's"
        print(f"{out} is finished{other}; again=true makes it anew")
    else:
        with notice("asking demonstrators for messages, and training the tokenizer on them ..."):
            start = WarmStart(curriculum, work, origin, compiled=options.compile)
        print(start.about(), flush=True)
        if not _trained(start, options.until):
            print(f"stopped after step {start.step} of {start.recipe.steps}; the same command continues")
            return
        export(start, out, code)
        shutil.rmtree(work)
        print(f"{out} is finished: {start.seconds:.0f} s of training")
        if chosen is not None and options.validation_tasks:
            _measure(start, options.validation_tasks)
        for policy, most in chosen.max_tokens.items() if chosen else ():
            if most < start.longest_message:
                print(
                    f"policies.{policy}.sampling.train.max_tokens={most} cuts its messages, which have up to "
                    f"{start.longest_message} tokens; raise it, and that of sampling.eval"
                )
    if chosen is not None:
        print(how_to_train(options, chosen, out))


def _trained(start: WarmStart, until: int | None) -> bool:
    """Train; whether the recipe's end is reached.  Ctrl-C and SIGTERM end it after the step, a second one at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        start.stop_requested = True
        signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        start.run(until)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return start.step == start.recipe.steps


def _measure(start: WarmStart, count: int) -> None:
    """Print the success of the finished model, in every role, on validation tasks, and the skill of each agent."""
    from ..envs.returned import TaskSource
    from ..evaluation.base_model import DRAWS, expert_shares, play_base
    from ..evaluation.statistics import wilson
    from ..experience import Sampling

    world = start.curriculum.worlds[0]

    async def play() -> tuple[list[str], dict[str, float]]:
        texts = []
        try:
            await world.open()
            tasks = TaskSource(world).tasks("validation", count, 0)
            longest = start.longest_message + 8
            shares = await expert_shares(start.model, start.tokenizer, world, tasks, longest)
            for name, temperature in (("sampled", 1.0), ("greedy", 0.0)):
                sampling = Sampling(temperature=temperature, max_tokens=longest)
                results = await play_base(start.model, start.tokenizer, world, tasks, sampling)
                successes = sum(result.success for result in results)
                low, high = wilson(successes, count)
                texts.append(f"{successes / count:.2f} ({low:.2f}-{high:.2f}) {name}")
        finally:
            await world.close()
        return texts, shares

    texts, shares = asyncio.run(play())
    print(f"success on {count} validation tasks: {', '.join(texts)}")
    by_agent = ", ".join(f"{agent} {share:.0%}" for agent, share in shares.items())
    print(f"greedy messages that are one of {DRAWS} of an expert's: {by_agent}")


def how_to_train(options: WarmStartOptions, chosen: ChosenWorld, out: Path) -> str:
    """The command that trains with the finished model."""
    words = ["troupe", "train", *(["--config-dir", options.config_dir] if options.config_dir else []), *options.world]
    words += [f"policies.{policy}.base={out}" for policy, base in chosen.bases.items() if base != str(out)]
    return f"train with it:\n  {shlex.join(words)}"


def main(arguments: Sequence[str]) -> None:
    """``troupe warm-start env=NAME key=value ...``."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        options = WarmStartOptions.read(arguments)
        run(options, None if options.base else chosen_world(options))
    except KeyboardInterrupt:
        sys.exit("interrupted")
    except Exception as error:  # the user's world may raise any
        end(error, refusal=ConfigError)
