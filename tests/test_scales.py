"""The scales: what composes, what is refused, and every world end to end with a tiny model in Qwen3's place."""

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from troupe.cli import train
from troupe.envs.search.index import Index, Passage
from troupe.errors import ConfigError
from troupe.models.bases.base_models import SHIPPED
from troupe.setup.composition import choices
from troupe.setup.sections import read_config

from .worlds import SETTINGS, slow_but

ROOT = Path(__file__).parents[1]
Composed = Callable[..., DictConfig]
HARD = {"plan_path_hard", "plan_path_short", "sokoban_hard"}
WORLDS = [name for name in choices("env") if name not in SETTINGS - HARD]
EXPERIMENTS = [f"{world}_specialized" for world in WORLDS]
SCALES = choices("scale")
MODELS = {"paper_1_7b": "Qwen/Qwen3-1.7B", "paper_8b": "Qwen/Qwen3-8B"}
GENERAL = ["laptop", "paper_1_7b", "paper_8b"]
MAGRPO = {"code_collab": ("Qwen/Qwen2.5-Coder-3B", 2e-5, 2, 780), "writing": ("Qwen/Qwen3-1.7B", 5e-6, 1, 2000)}
"""At MAGRPO's scale: the model, its learning rate, the turns, and the iterations."""
HAS = {
    "couplet": ["laptop"],
    "signalling": ["laptop"],
    "kuhn": ["laptop"],
    "delegation": ["laptop"],
    "code": ["laptop", "coder", "paper_1_7b", "paper_8b"],
    "search": ["laptop", "coder", "paper_1_7b", "paper_8b"],
    "reasoning_gym": ["laptop", "coder", "paper_1_7b", "paper_8b", "smollm2"],
    "math": ["laptop", "coder", "paper_1_7b", "paper_8b", "smollm2"],
    "code_collab": ["laptop", "paper_magrpo", "coder", "paper_1_7b", "paper_8b"],
    "writing": ["laptop", "smollm2", "paper_magrpo", "paper_1_7b", "paper_8b"],
}
"""The scales of a world; the others have GENERAL."""
CODER = {
    "math": "Gsm8k",
    "reasoning_gym": "leg_counting",
    "code": "mbpp",
    "code_collab": "openai_humaneval",
    "search": "NaturalQuestions",
}
"""The tasks with Qwen2.5-Coder."""
SMOLLM2 = {
    "reasoning_gym": "troupe.envs.reasoning_gym.ReasoningGym",
    "math": "troupe.envs.math.WordProblems",
    "writing": "troupe.envs.writing.Writing",
}
"""The world's class with SmolLM2."""
HORIZONS = {"reasoning_gym": 1, "writing": 1, "code_collab": 1, "plan_path_hard": 3, "plan_path_short": 2}
THOUGHT = "<|im_start|>assistant\n<think>\n\n</think>\n\n"


# ---- a tiny Qwen3 with random weights, and a chat template that reads enable_thinking -------------------------------

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_level(texts: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level: it writes everything, and what occurs in ``texts`` in fewer tokens."""
    found = Tokenizer(BPE())
    found.pre_tokenizer, found.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=1024, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False)
    found.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=found,
        pad_token=SPECIALS[0],
        eos_token=SPECIALS[2],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def write_tiny(folder: Path) -> str:
    """The model and its tokenizer, in ``folder``; its path."""
    words = byte_level([file.read_text() for file in sorted((ROOT / "src/envs").rglob("*.py"))])
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(words),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=8192,
            tie_word_embeddings=True,
            pad_token_id=words.pad_token_id,
            eos_token_id=words.eos_token_id,
            bos_token_id=None,
        )
    )
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of the tiny model."""
    return write_tiny(tmp_path_factory.mktemp("tiny"))


# ---- what composes --------------------------------------------------------------------------------------------------


QUICK = [f"{name}_specialized" for name in ("sokoban", "math", "writing", "code_collab")]
"""Of worlds that have all scales between them."""


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("experiment", slow_but(QUICK, EXPERIMENTS))
def test_every_experiment_has_a_scale_or_says_which_it_has(experiment: str, scale: str) -> None:
    words = [f"experiment={experiment}", f"scale={scale}", "name=test", "run_dir=nowhere"]
    with initialize_config_module("troupe.configs", version_base="1.3"):
        world = experiment.rpartition("_")[0]
        if scale not in (has := HAS.get(world, GENERAL)):
            with pytest.raises(ConfigError) as refused:
                compose("train", overrides=words)
            assert str(refused.value) == (
                f"scale={scale}: env={world} does not have this scale. Scales that it has: {', '.join(has)}"
            )
            return
        cfg = compose("train", overrides=words)
        config: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
        read_config(config, OmegaConf.to_yaml(cfg, resolve=False))
    bases = {policy["base"] for policy in config["policies"].values()}
    if scale == "laptop":
        assert config["engine"]["_target_"].endswith("TorchEngine") and bases < {None, *SHIPPED}
        return
    if scale == "coder":
        assert bases == {"Qwen/Qwen2.5-Coder-0.5B-Instruct"} and config["engine"]["_target_"].endswith("TorchEngine")
        assert CODER[world] in str(config["env"])
        return
    if scale == "smollm2":
        assert bases == {"smollm2_q4"} and config["engine"]["_target_"].endswith("TorchEngine")
        assert config["env"]["_target_"] == SMOLLM2[world]
        assert (config["algorithm"]["sampler"]["k"], config["loop"]["lockstep"]) == (8, True)
        if world == "writing":
            check_posts(config)
        return
    if scale == "paper_magrpo":
        check_magrpo(world, config)
        return
    assert bases == {MODELS[scale]} and config["engine"]["_target_"].endswith("VllmEngine")
    assert config["engine"]["dtype"] == "bfloat16" and not config["engine"]["lockstep"]
    assert all(policy["chat"] == {"enable_thinking": False} for policy in config["policies"].values())
    assert config["algorithm"]["credit"].get("std_floor", 1e-6) == 1e-6
    assert config["algorithm"].get("reward", {"team": "global"}) == {"team": "global"}  # a sampler of trees has one
    mini_batches = 1 if config["algorithm"]["credit"]["_target_"].endswith("Magrpo") else 2
    assert (config["loop"]["tasks_per_iteration"], config["algorithm"]["update"]["mini_batches"]) == (32, mini_batches)
    assert config["env"].get("horizon", 4) == HORIZONS.get(world, 4)
    assert config["env"].get("local_share") != 0.2


def check_posts(config: dict[str, Any]) -> None:
    """Writing with SmolLM2: the publication's reward and temperature, on posts that are generated."""
    env = config["env"]
    assert (env["kind"], env["on_topic"], env["examples"], env["mark"]) == ("tldr", 0.0, 1, "\n\n")
    assert (
        env["train"] == [{"_target_": "troupe.envs.writing.GeneratedPosts"}] and env["validation"] == env["test"] == []
    )
    for policy in config["policies"].values():
        for sampling in policy["sampling"].values():
            assert (sampling["temperature"], sampling["top_p"], sampling["max_tokens"]) == (0.7, 1.0, 48)


def check_magrpo(world: str, config: dict[str, Any]) -> None:
    """The publication's constants, as far as they are known."""
    base, rate, turns, iterations = MAGRPO[world]
    for policy in config["policies"].values():
        assert (policy["base"], policy["optimizer"]["lr"]) == (base, 5e-5 if policy["tuning"] == "lora" else rate)
        assert policy["scheduler"]["_target_"].endswith("ConstantLR")
        raw = world == "code_collab"
        assert (policy["prompts"], policy["chat"]) == (("raw", {}) if raw else (None, {"enable_thinking": False}))
        train, evaluation = policy["sampling"]["train"], policy["sampling"]["eval"]
        assert (train["temperature"], train["top_p"], train["top_k"], train["max_tokens"]) == (0.7, 1.0, 0, 256)
        assert (evaluation["temperature"], evaluation["top_p"], evaluation["top_k"]) == (0.7, 0.9, 50 if raw else 0)
    assert (config["env"]["horizon"], config["loop"]["iterations"]) == (turns, iterations)
    algorithm = config["algorithm"]
    assert (algorithm["sampler"]["k"], config["loop"]["tasks_per_iteration"]) == (4, 1)
    assert algorithm["update"]["mini_batches"] == 1 and config["engine"]["_target_"].endswith("VllmEngine")
    if algorithm["credit"]["_target_"].endswith("Magrpo"):
        assert (algorithm["credit"]["gamma"], algorithm["credit"]["normalise"]) == (1.0, False)
        assert (algorithm["sampler"]["pairing"], algorithm["sampler"]["growth"]) == ("aligned", "full")


@pytest.mark.parametrize("scale", ["paper_1_7b", "paper_magrpo"])
@pytest.mark.parametrize("name", ["code_collab_coop", "code_collab_mbpp", "writing_arxiv"])
def test_the_other_tasks_of_a_world_compose_too(composed: Composed, name: str, scale: str) -> None:
    cfg = composed(f"env={name}", "algorithm=magrpo", f"scale={scale}")
    config: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    run = read_config(config, OmegaConf.to_yaml(cfg, resolve=False))
    assert run.env["_target_"].startswith("troupe.envs.") and "parts" not in run.env
    if scale == "paper_magrpo":
        assert {policy["base"] for policy in config["policies"].values()} == {MAGRPO[name.rpartition("_")[0]][0]}
        sampled = {"code_collab_coop": (0.8, 0.8, 0.95, 50), "code_collab_mbpp": (0.7, 0.7, 0.9, 50)}
        for policy in config["policies"].values():
            train, evaluation = policy["sampling"]["train"], policy["sampling"]["eval"]
            found = (train["temperature"], evaluation["temperature"], evaluation["top_p"], evaluation["top_k"])
            assert found == sampled.get(name, (0.7, 0.7, 0.9, 0)) and train["top_p"] == 1.0


def test_what_the_command_line_says_wins(composed: Composed) -> None:
    cfg = composed(
        "experiment=sokoban_lora", "scale=paper_8b", "engine=torch", "loop.tasks_per_iteration=7", "env.tool_view=map"
    )
    assert cfg.engine.dtype is None and cfg.loop.tasks_per_iteration == 7
    assert (cfg.env.tool_view, cfg.env.planner_view, cfg.env.tool_message) == ("map", "full", "program")
    assert composed("engine=vllm").engine.dtype == "float32"  # laptop
    other = composed("experiment=code_shared", "scale=paper_1_7b", "env=code_contests")
    assert other.env.data.train.path == "deepmind/code_contests"


def test_a_stray_key_of_a_scale_is_refused(composed: Composed) -> None:
    cfg = composed("scale=paper_8b", "+scale.vllm.block=3")
    config: Any = OmegaConf.to_container(cfg, resolve=True)
    with pytest.raises(ConfigError, match=r"scale\.vllm\.block is an unknown key"):
        read_config(config, OmegaConf.to_yaml(cfg, resolve=False))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["experiment=sokoban_shared", "scale=paper_8b"],
            ("8,190,735,360", "Qwen/Qwen3-8B", "at most 1,536 completions"),
        ),
        (["experiment=math_lora", "scale=paper_1_7b"], ("1,755,440,128", "34,865,152", "2 optimizer steps")),
        # 30 layers of 16 * (2 * 1152 + 2 * 768 + 3 * 2112), for two policies.
        pytest.param(
            ["experiment=math_lora", "scale=smollm2", "scale.base=smollm2"],
            ("144,283,968", "9,768,960", "engine"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["experiment=math_specialized", "scale=smollm2"],
            ("134,515,008", "smollm2_q4", "at most 96 completions"),
            marks=pytest.mark.slow,
        ),
        (["experiment=writing_lora", "scale=smollm2"], ("144,283,968", "9,768,960", "at most 64 completions of 3,072")),
        # Of each of two agents K + K^2 completions; their weights, 3,085,938,688 numbers each.
        (
            ["experiment=code_collab_specialized", "scale=paper_magrpo"],
            ("3,085,938,688", "Qwen/Qwen2.5-Coder-3B", "at most 40 completions", "780"),
        ),
        (
            ["experiment=writing_specialized", "scale=paper_magrpo"],
            ("1,720,574,976", "Qwen/Qwen3-1.7B", "at most 8 completions", "2,000 iterations"),
        ),
        pytest.param(
            ["experiment=code_single", "scale=paper_1_7b"],
            ("1,720,574,976", "at most 512 completions"),
            marks=pytest.mark.slow,
        ),
        (
            ["experiment=search_shared", "scale=paper_1_7b"],
            ("1,720,574,976", "env.index=search_index: there is no index"),
        ),
    ],
)
def test_a_dry_run_needs_neither_model_nor_data(
    composed: Composed, capsys: pytest.CaptureFixture[str], words: list[str], told: tuple[str, ...]
) -> None:
    # Adapters: 28 layers of 16 * (2 * 4096 + 2 * 3072 + 3 * 8192), for two policies.
    train.show_plan(composed(*words))
    printed = capsys.readouterr().out
    assert all(part in printed for part in told), printed


VARIANTS = sorted({*choices("env")} - {*WORLDS})
"""Other data of a world, and teams of other sizes."""


def paper_scales(world: str) -> list[str]:
    """Those that an environment has of the papers' scales: those of the world that its name begins with."""
    base = max((name for name in HAS if world == name or world.startswith(f"{name}_")), key=len, default="")
    return [scale for scale in HAS.get(base, GENERAL) if scale.startswith("paper")]


PLANS = [(f"experiment={world}_specialized", scale) for world in WORLDS for scale in paper_scales(world)[:1]]
PLANS += [(f"env={name}", scale) for name in VARIANTS for scale in paper_scales(name)[:1]]
PLANS += [("experiment=sokoban_specialized", "paper_8b"), ("experiment=math_specialized", "paper_8b")]


def test_every_world_of_the_papers_scales_has_a_plan_to_print() -> None:
    without = {"couplet", "delegation", "kuhn", "signalling"}
    assert {words for words, _ in PLANS if words.startswith("experiment")} == {
        f"experiment={name}_specialized" for name in {*WORLDS} - without
    }
    assert {words for words, _ in PLANS if words.startswith("env")} == {f"env={name}" for name in VARIANTS}


@pytest.mark.slow
@pytest.mark.parametrize(("words", "scale"), PLANS)
def test_every_world_prints_its_plan_at_the_papers_scales(
    composed: Composed, capsys: pytest.CaptureFixture[str], words: str, scale: str
) -> None:
    cfg = composed(words, f"scale={scale}", "name=test", "run_dir=nowhere")
    config: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    read_config(config, OmegaConf.to_yaml(cfg, resolve=False))
    train.show_plan(cfg)
    printed = capsys.readouterr().out
    loop, k = config["loop"], config["algorithm"]["sampler"]["k"]
    tasks, iterations = loop["tasks_per_iteration"], loop["iterations"]
    assert f"per iteration: {tasks} task{'s' if tasks > 1 else ''}, K = {k}, at most" in printed
    assert f"{iterations:,} iterations: at most" in printed and "Qwen/" in printed and "GiB" in printed
    assert all(agent in printed for agent in config["team"])


# ---- what runs ------------------------------------------------------------------------------------------------------

APPS = {
    "problem_id": 1,
    "solutions": json.dumps(["print(int(input()) * 2)"]),
    "input_output": json.dumps({"inputs": ["1\n", "4\n"], "outputs": ["2\n", "8\n"]}),
    "difficulty": "introductory",
    "url": "",
    "starter_code": "",
}


def rows(path: Path, count: int, row: Callable[[int], dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row(number)) + "\n" for number in range(count)))
    return str(path)


def human_eval(name: str) -> dict[str, Any]:
    """A row of HumanEval's columns."""
    return {
        "task_id": name,
        "prompt": f'def twice(n):\n    """Double it. {name}."""\n',
        "canonical_solution": "    return 2 * n\n",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n",
        "entry_point": "twice",
    }


def data_of(world: str, folder: Path) -> list[str]:
    """Overrides that put small files in the data sets' place."""
    if world == "code":
        files = [
            rows(folder / f"{split}.jsonl", 40, lambda n, split=split: APPS | {"question": f"Double it. {split} {n}."})
            for split in ("train", "test")
        ]
        return [f"env.data.train.path={files[0]}", f"env.data.test.path={files[1]}", "env.sandbox.workers=1"]
    if world == "code_collab":
        file = rows(folder / "human_eval.jsonl", 164, lambda n: human_eval(str(n)))  # both splits are slices of it
        return [f"env.data.train.path={file}", f"env.data.test.path={file}", "env.sandbox.workers=1"]
    if world in ("math", "math_team"):
        key = "env.pair" if world == "math_team" else "env"  # a team of many is made of pairs
        train_file = rows(folder / "a.jsonl", 60, lambda n: {"problem": f"What is {n} + {n}?", "answer": str(2 * n)})
        test_file = rows(folder / "b.jsonl", 4, lambda n: {"problem": f"What is {n} - 9?", "answer": str(n - 9)})
        sources = {"train": ("Polaris", train_file), "test": ("Aime24", test_file)}
        found = [f"{key}.{split}=[{{_target_: troupe.envs.math.{k}, path: {f}}}]" for split, (k, f) in sources.items()]
        return [*found, f"{key}.validation_share=0.2", f"{key}.sandbox.workers=1"]
    if world == "writing":
        files = [
            rows(folder / f"{split}.jsonl", 60, lambda n, split=split: {"prompt": f"My cat {n} {split} naps. TL;DR:"})
            for split in ("train", "test")
        ]
        return [f"env.{s}.0.path={file}" for s, file in zip(("train", "test"), files, strict=True)]
    if world == "search":
        Index.of([Passage("Sums", "Passages about sums, such as what 3 and 4 are.")]).save(folder / "index")
        train_file = rows(folder / "a.jsonl", 60, lambda n: {"question": f"What is {n}?", "answer": [str(n)]})
        test_file = rows(folder / "b.jsonl", 4, lambda n: {"Question": f"And what is {n}?", "Answer": str(n)})
        sources = {"train": ("NaturalQuestions", train_file), "test": ("Bamboogle", test_file)}
        named = [f"env.{split}=[{{_target_: troupe.envs.search.{k}, path: {f}}}]" for split, (k, f) in sources.items()]
        return [*named, f"env.index={folder / 'index'}"]
    return ["scale.sandbox.workers=1"]


SIZES = [
    *(
        "loop.iterations=1",
        "loop.tasks_per_iteration=2",
        "loop.validation_tasks=1",
        "loop.test_tasks=1",
        "loop.eval_every=5",
    ),
    *("algorithm.sampler.k=2", "threads=1", "engine=torch"),
]


def played(
    composed: Composed, tiny: str, folder: Path, experiment: str, *words: str, scale: str = "paper_1_7b"
) -> tuple[Any, dict[str, Any]]:
    """The loop of one iteration of ``experiment`` at the papers' scale, and its only row of metrics."""
    given = [f"experiment={experiment}", f"scale={scale}", *SIZES, f"run_dir={folder / 'run'}"]
    world = experiment.rpartition("_")[0]
    given += [*data_of(world, folder), "env.pair.horizon=1" if world == "math_team" else "env.horizon=1"]
    for name in composed(*given[:2]).policies:
        given += [f"policies.{name}.base={tiny}"]
        given += [f"policies.{name}.sampling.{way}.max_tokens=6" for way in ("train", "eval")]
    loop = train.build(composed(*given, *words))
    summary = asyncio.run(loop.run())
    assert summary["status"] == "finished" and 0 <= summary["eval/success"] <= 1
    (line,) = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return loop, json.loads(line)


def check(loop: Any, row: dict[str, Any]) -> None:
    assert all(math.isfinite(value) for value in row.values() if isinstance(value, float))
    for name, policy in loop.team.policies.items():
        agents = [agent for agent, own in loop.router.team.items() if own == name]
        assert policy.version == 1 and row[f"train/{name}/samples"] == 2 * 2 * len(agents)
        assert row[f"train/{name}/learning_rate"] > 0
    for clients in (loop.team.training, loop.team.evaluation):
        for agent, client in clients.items():
            prompt = client.tokenizer.decode(client.encode(agent, "t", [{"role": "user", "content": "Hello."}]))
            assert prompt == f"<|im_start|>user\nHello.<|im_end|>\n{THOUGHT}"


@pytest.mark.slow
def test_a_world_at_the_papers_scale(composed: Composed, tiny: str, tmp_path: Path) -> None:
    """An entropy bonus, so that a model that earns nothing takes its steps all the same."""
    loop, row = played(composed, tiny, tmp_path, "plan_path_specialized", "algorithm.objective.entropy=0.01")
    check(loop, row)
    for name in loop.team.policies:
        assert row[f"train/{name}/optimizer_steps"] == 2 and row[f"train/{name}/grad_norm"] > 0
        assert row[f"train/{name}/learning_rate"] == pytest.approx(5e-7)  # the first of ten iterations of warmup
    env = loop.world.fork()
    env.reset(loop.world.tasks("test", 1, 0)[0])
    system = env.observe("tool")[0]["content"]
    assert "Python" in system and "Moves:" in system


@pytest.mark.slow
@pytest.mark.parametrize(
    "experiment",
    [
        name
        for name in EXPERIMENTS
        if name.partition("_")[0] in ("sokoban", "sudoku", "code", "math", "search", "writing")
    ],
)
def test_every_world_and_tuning_at_the_papers_scale(
    composed: Composed, tiny: str, tmp_path: Path, experiment: str
) -> None:
    check(*played(composed, tiny, tmp_path, experiment))


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["code_collab_specialized", "writing_specialized"])
def test_magrpos_scale(composed: Composed, tiny: str, tmp_path: Path, experiment: str) -> None:
    loop, row = played(composed, tiny, tmp_path, experiment, scale="paper_magrpo")
    raw = experiment.startswith("code")  # a base model, prompted without a template
    for name, policy in loop.team.policies.items():
        assert policy.version == 1 and row[f"train/{name}/samples"] == 2 * 2
        client = loop.team.training[name]
        prompt = client.tokenizer.decode(client.encode(name, "t", [{"role": "user", "content": "Hello."}]))
        assert ("<|im_start|>" not in prompt) == raw and "Hello." in prompt
        assert 0 <= row[f"rollout/{name}/points"] <= (4 if raw else 3)


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["writing_lora", "writing_single", "writing_specialized"])
def test_posts_with_a_tiny_model_in_the_place_of_smollm2(
    composed: Composed, tiny: str, tmp_path: Path, experiment: str
) -> None:
    words = [f"experiment={experiment}", "scale=smollm2", f"scale.base={tiny}", *SIZES, f"run_dir={tmp_path / 'run'}"]
    loop = train.build(composed(*words))
    summary = asyncio.run(loop.run())
    (line,) = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert summary["status"] == "finished" and row["rollout/completions"] == 2 * 2 * len(loop.world.agents)
    for agent in loop.world.agents:
        assert 0 <= row[f"rollout/{agent}/points"] <= 3 and row[f"rollout/{agent}/judge_errors"] == 0
