// The list of episodes: filters, search, order, and a window of rows, so that ten thousand are as fast as ten.
const ROW_HEIGHT = 66;
/** By name: a key, or several, of which a later one decides where those before it are equal. */
const ORDERS = {
  newest: { title: "latest first", key: (row) => -(row.iteration ?? 1e9) },
  oldest: { title: "earliest first", key: (row) => row.iteration ?? 1e9 },
  best: { title: "highest return", key: (row, of) => -reward(row, of) },
  worst: { title: "lowest return", key: (row, of) => reward(row, of) },
  longest: { title: "longest", key: (row, of) => -(size(row, of) ?? -1) },
  shortest: { title: "shortest", key: (row, of) => size(row, of) ?? 1e12 },
  solved: { title: "solved first", key: (row) => -(row.success ?? -1) },
  failed: { title: "not solved first", key: (row) => row.success ?? 2 },
  weakest: { title: "agent that earned least", key: (row) => weakest(row) },
  spread: { title: "largest advantage", key: (row) => -row.advantage },
  task: { title: "task", key: null },
};
/** The team's return, or the mean reward of the messages of agent `of`; null where there is none. */
const earned = (row, of) => (of === "" ? row.reward : row.own[of]?.[0]) ?? null;
const reward = (row, of) => earned(row, of) ?? -1e9;
/** The number of the agent whose messages earned least in an episode, and how much; episodes without rewards are last. */
const weakest = (row) => Object.entries(row.own).map(([of, [value]]) => [Number(of), value]).filter(([, value]) => finite(value))
  .reduce((least, one) => (least[1] <= one[1] ? least : one), [1e9, 1e9]);
/** Tokens of the team, or of agent `of`; null where the file does not say. */
const size = (row, of) => (of === "" ? row.length : row.own[of]?.[1]) ?? null;
/** The least and the most of a figure, each "" where there is no bound; a row without the figure is within none. */
const within = (value, [least, most]) => (least.value === "" && most.value === "") || (finite(value) &&
  (least.value === "" || value >= Number(least.value)) && (most.value === "" || value <= Number(most.value)));
/** Below 0 where the keys `a` come before `b`, which are as many. */
const inOrder = (a, b) => a.map((value, i) => value - b[i]).find((difference) => difference !== 0) ?? 0;
const OUTCOMES = { "": "any outcome", solved: "solved", failed: "not solved", mixed: "both, by branch", none: "no outcome" };
const outcome = (row) => row.success === null ? "none" : row.success === 1 ? "solved" : row.success === 0 ? "failed" : "mixed";

const pip = (row) => el("i", { class: `pip ${{ solved: "won", mixed: "mixed", none: "none" }[outcome(row)] ?? "lost"}`, role: "img", "aria-label": OUTCOMES[outcome(row)] });

class EpisodeList {
  constructor({ sources, rows, agents, kinds }, choose, searched) {
    Object.assign(this, { sources, rows, agents, kinds, choose, searched, shown: rows, found: null, chosen: -1, search: 0 });
    this.box = document.getElementById("episode-list");
    this.status = document.getElementById("episode-count");
    this.controls = Object.fromEntries(["source", "iteration", "agent", "outcome", "fault", "order", "words"].map((name) => [name, document.getElementById(`by-${name}`)]));
    this.bounds = Object.fromEntries(["reward", "length"].map((name) => [name, ["least", "most"].map((end) => document.getElementById(`${name}-${end}`))]));
    this.spacer = el("div", { role: "presentation" });
    this.box.append(this.spacer);
    this.fillControls();
    this.box.addEventListener("scroll", () => this.draw());
    this.box.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.apply();
  }

  fillControls() {
    const { source, iteration, agent, outcome: by, fault, order, words } = this.controls;
    const option = (value, text) => el("option", { value }, text);
    const used = this.sources.map((title, i) => [i, title]).filter(([i]) => this.rows.some((row) => row.source === i));
    source.append(option("", "all episodes"), ...used.map(([i, title]) => option(i, title)));
    const iterations = [...new Set(this.rows.map((row) => row.iteration))].filter((at) => at !== null).sort((a, b) => a - b);
    iteration.append(option("", "any iteration"), ...iterations.map((at) => option(at, moment(at))));
    agent.append(option("", "the team"), ...this.agents.map((name, i) => option(i, name)));
    by.append(...Object.entries(OUTCOMES).map(([value, text]) => option(value, text)));
    fault.append(option("", "any or none"), ...this.kinds.map((kind, i) => [i, kind]).filter(([i]) => this.rows.some((row) => row.faults.includes(i))).map(([i, kind]) => option(i, kind)));
    order.append(...Object.entries(ORDERS).map(([value, { title }]) => option(value, title)));
    for (const control of [source, iteration, agent, by, fault, order]) control.addEventListener("change", () => this.apply());
    for (const bound of Object.values(this.bounds).flat()) bound.addEventListener("input", () => this.apply());
    words.addEventListener("input", () => this.onSearch());
  }

  apply() {
    const { source, iteration, agent, outcome: by, fault, order } = this.controls;
    const is = (control, value) => control.value === "" || control.value === String(value);
    this.shown = this.rows.filter((row) => is(source, row.source) && is(iteration, row.iteration) && is(by, outcome(row)) && (fault.value === "" || row.faults.includes(Number(fault.value))) &&
      (agent.value === "" || row.own[agent.value]) && within(earned(row, agent.value), this.bounds.reward) && within(size(row, agent.value), this.bounds.length) &&
      (this.found === null || this.found.has(row.id)));
    const { key } = ORDERS[order.value];
    const keys = key && new Map(this.shown.map((row) => [row.id, [key(row, agent.value), row.id].flat()]));
    this.shown.sort(keys ? (a, b) => inOrder(keys.get(a.id), keys.get(b.id)) : (a, b) => a.task.localeCompare(b.task) || a.id - b.id);
    this.status.textContent = this.shown.length === this.rows.length ? count(this.rows.length, "episode") : `${this.shown.length.toLocaleString("en")} of ${count(this.rows.length, "episode")}`;
    this.spacer.style.height = `${this.shown.length * ROW_HEIGHT}px`;
    this.reveal();
  }

  /** Task names at once, messages a moment later: each chunk is opened once. */
  async onSearch() {
    const words = this.words(), search = ++this.search;
    if (!words) { this.found = null; this.apply(); this.searched(); return; }
    this.found = new Set(this.rows.filter((row) => holds(row.task, words)).map((row) => row.id));
    this.apply();
    this.status.textContent += ", searching messages …";
    await new Promise((resolve) => setTimeout(resolve, 150));
    const inMessages = search === this.search && await searchMessages(this.rows, words, () => search === this.search);
    if (!inMessages || search !== this.search) return;
    inMessages.forEach((id) => this.found.add(id));
    this.apply();
    this.searched();
  }

  words() {
    return this.controls.words.value.trim().toLowerCase();
  }

  draw() {
    const top = Math.max(0, Math.floor(this.box.scrollTop / ROW_HEIGHT) - 4);
    const rows = this.shown.slice(top, top + Math.ceil(this.box.clientHeight / ROW_HEIGHT) + 8);
    this.spacer.replaceChildren(...rows.map((row, i) => this.option(row, top + i)));
    if (!rows.length) this.spacer.append(el("div", { class: "no-match", role: "option", "aria-selected": "false", "aria-disabled": "true" }, "No episode matches."));
    const active = document.getElementById(`episode-${this.chosen}`);
    active ? this.box.setAttribute("aria-activedescendant", active.id) : this.box.removeAttribute("aria-activedescendant");
  }

  option(row, at) {
    const of = this.controls.agent.value;
    const place = [...(row.others ? [row.others] : []), this.sources[row.source].replace(" episodes", ""), row.when.replace(/ iterations?$/, "")].join(" · ");
    const least = this.controls.order.value === "weakest" ? weakest(row) : [1e9];
    const figures = [this.agents[least[0]] ? `${this.agents[least[0]]} ${digits(least[1])}` : `${of === "" ? "return" : "reward"} ${digits(earned(row, of))}`, size(row, of) === null ? null : count(size(row, of), "token"), count(row.turns, "turn")].filter(Boolean).join(" · ");
    return el("div", { class: "option", role: "option", id: `episode-${row.id}`, "aria-selected": String(row.id === this.chosen), "aria-setsize": this.shown.length, "aria-posinset": at + 1,
      style: `top:${at * ROW_HEIGHT}px`, onclick: () => this.choose(row) },
      pip(row),
      el("span", { class: "option-text" }, el("bdi", { class: "task" }, marked(row.task + (row.sample ? ` · sample ${row.sample + 1}` : ""), this.words())), el("small", { title: place }, place), el("small", { class: "figures" }, figures)));
  }

  mark(row) {
    this.chosen = row.id;
    this.reveal();
  }

  /** Scroll, where necessary, so that the chosen row is seen. */
  reveal() {
    const at = this.shown.findIndex((row) => row.id === this.chosen);
    const top = at * ROW_HEIGHT, { scrollTop, clientHeight } = this.box;
    if (at >= 0 && (top < scrollTop || top + ROW_HEIGHT > scrollTop + clientHeight)) this.box.scrollTop = top - clientHeight / 3;
    this.draw();
  }

  /** The episode `by` rows further down the list. */
  move(by, options) {
    const at = this.shown.findIndex((row) => row.id === this.chosen);
    const next = this.shown[at < 0 ? 0 : Math.min(this.shown.length - 1, Math.max(0, at + by))];
    if (next && next.id !== this.chosen) this.choose(next, options);
  }

  onKey(event) {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8, Home: -1e9, End: 1e9 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    this.move(by);
  }
}
