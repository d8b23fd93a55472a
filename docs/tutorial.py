# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A team in a notebook
#
# This page is a notebook in the percent format: jupytext and VS Code open it as one, and `make notebooks` runs it. It
# needs the extra `notebook` (`pip install 'troupe-rl[notebook]'`). All of it takes about a minute on two CPU cores.
#
# Two agents, each with a policy of its own, learn Sokoban: the tool agent proposes pushes, the planner moves the
# worker.

# %%
from tempfile import mkdtemp

from troupe import Experiment

experiment = Experiment.compose(
    "sokoban_specialized",
    overrides=["loop.iterations=8", "loop.eval_every=4", "loop.test_tasks=50", f"run_dir={mkdtemp()}/run"],
)
experiment.config["policies"]["tool"]["base"], experiment.config["algorithm"]["sampler"]["k"]

# %% [markdown]
# The overrides are the words of `troupe train`. A plan checks the configuration and loads no weights:

# %%
plan = experiment.plan()
for pool in plan.pools:
    print(f"{pool.policy}: {pool.parameters:,} parameters, agents {', '.join(pool.agents)}")
print(f"at most {plan.completions:,} completions per iteration")

# %% [markdown]
# Training runs to its end in this cell. To interrupt it (the stop button) raises `KeyboardInterrupt`, and
# `Experiment.resume(run_dir).train()` goes on from there.

# %%
run = experiment.train()

# %% [markdown]
# The run is a directory; `Run(path)` reads any other one. `metrics` is a pandas DataFrame with one row per iteration:

# %%
run.metrics[["rollout/best_of_k_success", "rollout/turns", "rollout/tool/reward", "rollout/plan/reward"]].round(3)

# %%
run.metrics[["rollout/tool/reward", "rollout/plan/reward"]].plot(ylabel="reward per message")

# %%
before, after = run.summary["eval_before/success"], run.summary["eval/success"]
low, high = run.summary["eval/success_ci95"]
print(f"success on held-out boards: {before:.0%} before training")
print(f"{after:.0%} after it (95 % interval {low:.0%} to {high:.0%})")

# %% [markdown]
# Episodes are kept as text: the pictures of the board, and what each agent saw and said.

# %%
episode = run.episodes("test")[0]
print("\n".join(episode["pictures"][0]))
for message in episode["messages"]:
    print(f"{message['agent']}: {message['said']}")
print("solved" if episode["success"] else "not solved")

# %% [markdown]
# A policy is a transformers model with its tokenizer. Here it answers the first prompt of that episode greedily:

# %%
model, tokenizer = run.policy("tool")
prompt = tokenizer.apply_chat_template(
    [{"role": "user", "content": episode["messages"][0]["saw"]}],
    add_generation_prompt=True,
    return_tensors="pt",
    return_dict=True,
)
answer = model.generate(**prompt, max_new_tokens=40, do_sample=False)
tokenizer.decode(answer[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)

# %% [markdown]
# What a repository on the Hugging Face hub would hold; `run.push_to_hub("OWNER/NAME")` uploads it:

# %%
folder = run.write_hub_folder(run.path / "hub", "OWNER/NAME")
sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
