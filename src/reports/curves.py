"""The curves of a run's metrics that a report shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ..runs.run import RunReader
from .charts import Chart, ChartDrawing, Point, Series, draw
from .values import episodes_of, interval, numeric, score_of

PALETTE = 6  # the page's colours for agents and policies; 0 is for success
GREY = 7
REWARD = re.compile(r"rollout/(.+)/reward")
PER_AGENT = {
    "rollout/{}/reward": "Reward per message, in training",
    "eval/{}/reward": "Reward per message, on validation tasks",
    "rollout/{}/tokens_per_message": "Tokens per message, in training",
}
PER_POLICY = {
    "loss": "Loss",
    "grad_norm": "Gradient norm, before clipping",
    "clipped_share": "Clipped tokens",
    "step_kl_nats": "KL to the update's start, nats",
    "behaviour_kl_nats": "KL to the behaviour policy, nats",
    "live_groups": "Groups with an advantage",
    "learning_rate": "Learning rate",
}
SHARES = {"clipped_share", "live_groups"}
MISMATCH = {
    "k3_nats": "KL of the engine from the learner, nats",
    "ess_ratio": "Effective sample size of the importance ratios, over their number",
    "corrected_share": "Importance ratios truncated or masked",
}
DIAGNOSTICS = {
    "entropy_nats": "Entropy per sampled token, nats",
    "zero_variance": "Groups without any difference",
    "spread": "Pairs of candidates that earned differently",
    "influence": "Messages whose replacement changes the outcome",
    "gradient_share": "Share of the gradient of a shared policy",
    "excess_weight": "Weight in a shared policy's loss, beyond the share of the messages",
    "truncated": "Messages cut off",
}
EXPLAINED = {
    "Best of K": "Of the best of K candidates at every turn: not the team's own success.",
    "Turns per episode": "Few turns, where an episode ends once its task is solved.",
    "Reward per message, in training": "What a message earns on its own copy of the world, all candidates counted.",
    "Reward per message, on validation": "The same for episodes that are played once, on held-out tasks.",
    "Tokens per message|Messages cut off|truncated_ratio": "Messages at the limit of their length are cut off.",
    "Generated tokens per second": "Of all engines together, over the time of the rollout.",
    "Seconds per iteration|update_s": "Where an iteration's time goes; parts that run side by side add up to more.",
    "Loss$": "Its value says little: advantages sum to zero. Look at success.",
    "Gradient norm, before clipping": "A jump announces an update that may harm.",
    "Clipped tokens": "Tokens that learn no more, since the policy has moved far enough.",
    "KL to the update's start": "How far one update moves the policy, per token.",
    "KL to the behaviour policy": "How far the learner is from the policy that sampled the messages, per token.",
    "Groups with an advantage": "Only these teach: in the others all candidates earned the same.",
    "Learning rate": "As its schedule has it.",
    "KL of the engine from the learner": "Near zero, where both compute with the same weights.",
    "Effective sample size": "Near 100 %, where samples fit the learner.",
    "Importance ratios truncated": "Tokens that engine and learner judge very differently.",
    "Entropy per sampled token": "Near zero, a policy always says the same, and explores no more.",
    "Groups without any difference": "Their candidates earned the same, so that nothing is learnt from them.",
    "Pairs of candidates": "How often two candidates of a prompt can be told apart.",
    "Messages whose replacement": "Near zero, the team does not depend on this agent.",
    "Share of the gradient": "How much of an update comes from this agent's messages.",
    "Weight in a shared policy's loss": "Above zero, it weighs more than others.",
    "advantage_p|tokens_(p|max)": "A quantile over the agent's messages.",
    "influence_pairs|probe_|watched_": "Of tasks that are played once more: nothing is learnt from them.",
    "malformed": "Messages that the world cannot read, as a share.",
    "/prompts": "Expected number of prompts: in a full tree each counts with its probability.",
    "reward_mean|reward_std": "Of the mixed reward per message, over all candidates.",
    "trees_bytes": "Size of the training trees that were kept.",
    "lost_episodes": "Episodes that a fault ended: they count in no other metric.",
    "faults/oom_": "How often a batch was halved for lack of memory.",
    "^faults/": "Failures of this kind; nothing was learnt from what failed.",
    "cut_prompts": "Prompts that were shortened to the context, as a share.",
    "retokenised_prompts": "Prompts with an earlier message in other tokens than were sampled, as a share.",
    "judge_errors": "Errors of judges per message.",
    "(local|outcome)_reward": "This part of the reward, per message.",
    "rounding_nats": "How far log-probabilities differ by rounding alone, in this dtype.",
    "staleness": "Versions of the policy between a message and the update that learns from it.",
    "/(messages|samples|optimizer_steps|tasks|completions|episodes|env_steps|(prompt_)?tokens)$": "In this iteration.",
    "^remote/": "Of the server that speaks for this policy, in this iteration.",
    "^(rollout|eval)/AGENT/": "A number of the world's own, its mean per message.",
}
"""A sentence below each chart: that of the first pattern in its title."""
CHARTED = re.compile(
    r"iteration|time/.+|mismatch/.+|diagnostics/.+/turn\d+/.+|eval/(success|turns)|(rollout|eval)/AGENT/reward|"
    r"rollout/(turns|best_of_k_success|success|tokens_per_s|AGENT/tokens_per_message)|"
    rf"train/POLICY/({'|'.join(PER_POLICY)})|diagnostics/AGENT/({'|'.join(DIAGNOSTICS)})"
)
MISMATCH_KEY = re.compile(r"mismatch/(.+)/(turn\d+)/(.+)")
BEST_OF_K = "Best of K: in training the best of K candidates is chosen at every turn. It is not the team's own success."


def colours(run: RunReader, agents: Iterable[str]) -> dict[str, int]:
    """A colour from 1 to ``PALETTE`` for every agent and policy, ``agents`` first; an agent and a policy of the same
    name share one."""
    names = dict.fromkeys(agents) | dict.fromkeys(agents_of(run)) | dict.fromkeys(policies_of(run))
    return {name: 1 + index % PALETTE for index, name in enumerate(names)}


def learning_curve(run: RunReader) -> ChartDrawing | None:
    """Success on validation tasks with its interval, on test tasks before and after, and success in training."""
    validation = _points(run, "eval/success")
    bands = [(x, *span) for x, value in run.values("eval/success_ci95") if (span := interval(value))]
    before, tested = score_of(run, "validation_before"), score_of(run, "eval_before")
    if before:
        validation = [(0, before.success), *validation]
        bands = [(0, *before.interval), *bands] if before.interval else bands
    best = _points(run, "rollout/best_of_k_success")
    sampled = _points(run, "rollout/success")
    series = [Series("best of K, training", best, PALETTE, "dashed")] if best else []
    series += [Series("sampled, training", sampled, style="faint")] if sampled else []
    iterations = run.summary.get("iterations")
    if not numeric(iterations):
        iterations = file.iteration if (file := episodes_of(run, "eval")) else len(run.rows)
    end = iterations or 0
    ends = [(x, score) for x, key in ((0, "eval_before"), (end, "eval")) if (score := score_of(run, key))]
    tests = [(x, score.success, score.interval) for x, score in ends if score.interval]
    if tests:
        series.append(Series("test", [(x, y) for x, y, _ in tests], GREY, "dots", [(x, *span) for x, _, span in tests]))
    if validation and validation[0][0] and tested:  # played on other tasks: no part of the line
        series.append(Series("", [(0, tested.success), validation[0]], style="dashed"))
    series.append(Series("validation", validation, band=bands))  # the last: its smaller dots are on those of the test
    return draw(
        Chart("Success on held-out tasks", series, BEST_OF_K if best else "", share=True, whole=True, x_end=end)
    )


def of_each(agents: Iterable[str], policies: Iterable[str]) -> Iterator[tuple[str, str, bool, Iterable[str]]]:
    """(Key with {} for a name, title, whether it is a share, names) of what agents and policies have a chart of."""
    yield from ((form, title, False, agents) for form, title in PER_AGENT.items())
    yield from ((f"diagnostics/{{}}/{key}", title, key != "entropy_nats", agents) for key, title in DIAGNOSTICS.items())
    yield from ((f"train/{{}}/{key}", title, key in SHARES, policies) for key, title in PER_POLICY.items())


def per_agent_and_policy(run: RunReader, palette: Mapping[str, int]) -> list[ChartDrawing]:
    """Turns, what each agent earns and says, the update's statistics of every policy, then speed and time."""
    agents = [name for name in palette if name in agents_of(run)]
    series = [Series("training", _points(run, "rollout/turns"), style="faint")]
    series.append(Series("validation", _points(run, "eval/turns")))
    charts = [Chart("Turns per episode", series)]
    for form, title, share, names in of_each(agents, policies_of(run)):
        charts.append(Chart(title, _lines(run, form, names, palette), share=share))
    charts.append(Chart("Generated tokens per second", [Series("rollout", _points(run, "rollout/tokens_per_s"))]))
    times = [Series(name, _points(run, key), time_colour(index)) for index, (key, name) in enumerate(time_keys(run))]
    charts.append(Chart("Seconds per iteration", times))
    charts += [chart for agent in agents for chart in _mismatch(run, agent)]
    return _drawn(run, charts)


def _drawn(run: RunReader, charts: Iterable[Chart]) -> list[ChartDrawing]:
    """``charts`` with one x axis, also where a metric was measured in the first iterations alone, and explained."""
    end = max((row["iteration"] for row in run.rows), default=0)
    return [drawing for chart in charts if (drawing := draw(replace(chart, x_end=end, note=sentence(chart.title))))]


def sentence(title: str) -> str:
    """What the chart of this title says; "" for numbers of others."""
    return next((text for pattern, text in EXPLAINED.items() if re.search(pattern, title, re.IGNORECASE)), "")


def _lines(run: RunReader, form: str, names: Iterable[str], palette: Mapping[str, int]) -> list[Series]:
    """One line for each of ``names``, which ``form`` makes a key."""
    return [Series(name, _points(run, form.replace("{}", name)), palette[name]) for name in names]


def _mismatch(run: RunReader, agent: str) -> Iterator[Chart]:
    """How much the log-probabilities of engine and learner differed, one line per turn."""
    matches = [match for key in _keys(run) if (match := MISMATCH_KEY.fullmatch(key)) and match[1] == agent]
    turns = sorted({match[2] for match in matches}, key=lambda turn: int(turn.removeprefix("turn")))
    palette = {turn: 1 + index % PALETTE for index, turn in enumerate(turns)}
    for name, title in MISMATCH.items():
        lines, in_nats = _lines(run, f"mismatch/{agent}/{{}}/{name}", turns, palette), name == "k3_nats"
        yield Chart(f"{agent}: {title}", lines, share=not in_nats)


def time_keys(run: RunReader) -> list[tuple[str, str]]:
    """(Key, name) of every time that rows hold: ``("time/rollout_s", "rollout")``."""
    keys = [key for key in _keys(run) if key.startswith("time/")]
    return [(key, key.removeprefix("time/").removesuffix("_s")) for key in keys]


def time_colour(index: int) -> int:
    """Counted from the palette's end, away from the agents'."""
    return PALETTE - index % PALETTE


def all_other(run: RunReader, palette: Mapping[str, int]) -> list[ChartDrawing]:
    """Every metric that no other chart shows, one chart for all agents or policies; times, mismatch statistics and the
    diagnostics of single turns are left out.
    """
    agents, policies = agents_of(run), policies_of(run)
    groups: dict[str, list[Series]] = {}
    for key in sorted(_keys(run)):
        room, _, rest = key.partition("/")
        owner, _, name = rest.rpartition("/")
        whose = "POLICY" if room in ("train", "remote") else "AGENT"
        known = owner in (policies if whose == "POLICY" else agents)
        title = f"{room}/{whose}/{name}" if known else key
        if not CHARTED.fullmatch(title):
            line = Series(owner, _points(run, key), palette[owner]) if known else Series(key, _points(run, key))
            groups.setdefault(title, []).append(line)
    return _drawn(run, (Chart(title, lines) for title, lines in groups.items()))


def agents_of(run: RunReader) -> list[str]:
    return [match[1] for key in _keys(run) if (match := REWARD.fullmatch(key))]


def policies_of(run: RunReader) -> list[str]:
    names = dict.fromkeys(key.split("/", 1)[1].rpartition("/")[0] for key in _keys(run) if key.startswith("train/"))
    return [name for name in names if name]


def _keys(run: RunReader) -> list[str]:
    """Keys of all rows, in the order in which they first appear."""
    return list(dict.fromkeys(key for row in run.rows for key in row))


def _points(run: RunReader, key: str) -> list[Point]:
    return [(x, value) for x, value in run.values(key) if numeric(value)]
