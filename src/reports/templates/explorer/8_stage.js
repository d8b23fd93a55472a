// One episode: its moments over training, its map, and the chosen prompt with the candidates that answered it.
const colours = JSON.parse(document.getElementById("explorer")?.dataset.colours ?? "{}");
const agentClass = (name) => `c${colours[name] ?? 0}`;

/** What plays a candidate on that did not go on: the outcome that nobody played yet. */
function replayCommand(row, node, candidate) {
  const place = `train_${String(row.iteration).padStart(5, "0")}/${row.task}`;
  const quoted = /^[\w./:@-]+$/.test(place) ? place : `'${place.replaceAll("'", "'\\''")}'`;
  return `troupe replay run=. episode=${quoted}${row.sample ? ` sample=${row.sample}` : ""} node=${node} candidate=${candidate + 1}`;
}

class Stage {
  constructor({ sources, rows }, choose) {
    Object.assign(this, { sources, rows, choose, mode: "plain", asked: 0, state: { node: 0, candidate: 0 } });
    this.box = document.getElementById("stage");
    this.voice = document.getElementById("stage-voice");
  }

  async open(row, node = undefined, candidate = undefined) {
    const asked = ++this.asked;
    const tree = await readTree(row);
    if (asked !== this.asked) return;  // another one was chosen meanwhile
    const before = this.sameTask(row).filter((other) => (other.iteration ?? 1e9) < (row.iteration ?? 1e9)).at(-1);
    this.before = before && { place: this.place(before), tree: await readTree(before) };
    if (asked !== this.asked) return;
    this.row = row;
    this.tree = tree;
    this.form = shape(tree);
    this.largest = largestAdvantage(tree);
    if (!this.modesOf(tree).includes(this.mode)) this.mode = "plain";
    const place = node === undefined ? opening(tree, list.words()) : tree.nodes[node] ? { node, candidate } : { node: 0 };
    this.state = { node: place.node, candidate: tree.nodes[place.node]?.candidates[place.candidate] ? place.candidate : this.continued(place.node) };
    this.render();
    const map = this.box.querySelector(".map-box"), dot = map?.querySelector(".dot.chosen");
    if (dot) map.scrollTo(dot.cx.baseVal.value - map.clientWidth / 2, dot.cy.baseVal.value - map.clientHeight / 2);
    this.voice.textContent = `${row.task}, ${this.place(row)}, ${OUTCOMES[outcome(row)]}`;
  }

  /** In place of an episode that cannot be read or drawn, so that no other one seems to be it. */
  fail(row, error) {
    Object.assign(this, { row, tree: undefined });
    this.box.replaceChildren(el("h3", {}, el("bdi", {}, row.task)), el("p", { class: "empty" }, `This episode cannot be shown: ${error.message}`));
    this.voice.textContent = "this episode cannot be shown";
  }

  continued(node) {
    return Math.max(0, this.tree.nodes[node]?.candidates.findIndex((candidate) => candidate.continued) ?? 0);
  }

  place(row) {
    return [this.sources[row.source], row.when, ...(row.others ? [row.others] : [])].join(", ");
  }

  /** Show a prompt and one of its candidates; the one that went on, where none is named. */
  select(node, candidate = this.continued(node), focus = false) {
    this.state = { node, candidate };
    this.render();
    writeHash(this.row, this.state);
    const { agent, turn, candidates } = this.tree.nodes[node], { advantage } = candidates[candidate] ?? {};
    this.voice.textContent = `turn ${turn + 1}, ${agent}, candidate ${candidate + 1} of ${candidates.length}${finite(advantage) ? `, advantage ${digits(advantage, true)}` : ""}`;
    const card = this.box.querySelector(".candidate.chosen");
    if (focus) card?.focus({ preventScroll: true });
    card?.scrollIntoView({ block: "nearest", inline: "nearest" });
    this.box.querySelector(".dot.chosen")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  render() {
    const { row, tree } = this, inside = this.box.contains(document.activeElement) && document.activeElement.dataset.keep;
    const scrolled = this.box.querySelector(".map-box")?.scrollLeft ?? 0;
    this.box.replaceChildren(...[this.header(row, tree), this.moments(row), this.map(tree), tree.nodes.length ? this.detail(tree) : null].filter(Boolean));
    const map = this.box.querySelector(".map-box");
    if (map) map.scrollLeft = scrolled;
    const cards = this.box.querySelector(".candidates"), card = cards?.querySelector(".chosen");
    if (card) cards.scrollLeft = card.offsetLeft - cards.offsetLeft - (cards.clientWidth - card.clientWidth) / 2;
    if (inside) this.box.querySelector(`[data-keep="${CSS.escape(inside)}"]`)?.focus({ preventScroll: true });
  }

  header(row, tree) {
    const what = OUTCOMES[outcome(row)];
    return el("header", { class: "episode-head" },
      el("h3", {}, el("bdi", {}, row.task)),
      el("p", { class: "facts" }, el("span", { class: `outcome ${outcome(row)}` }, what), ...[this.place(row), row.sample ? `sample ${row.sample + 1}` : null,
        `return ${digits(row.reward)}`, count(row.turns, "turn"), row.watched ? "watched: never learnt from" : null].filter(Boolean).map((text) => el("span", {}, text))),
      tree.problem ? el("p", { class: "note" }, tree.problem) : null,
      tree.best_of_k ? el("p", { class: "note" }, "The best of the K candidates went on at each prompt, so this outcome is above the team's own.") : null,
      this.samples(row),
      el("p", { class: "links" }, el("button", { type: "button", "data-keep": "link", onclick: () => this.copyLink() }, "Copy link")));
  }

  /** The address of what is shown goes to the clipboard; the status line says so. */
  async copyLink() {
    const link = location.href.replace(/#.*/, "") + address(this.row, this.state);
    await this.copy(link, "link copied", "the browser did not allow it: copy the address of the page", this.box.querySelector(".links"));
  }

  /** `text` goes to the clipboard; the status line and `place` say so. */
  async copy(text, done, refused, place) {
    try {
      await navigator.clipboard.writeText(text);
      this.voice.textContent = done;
    } catch {  // a browser that does not let a page write there
      this.voice.textContent = refused;
    }
    place.append(el("small", {}, this.voice.textContent));
  }

  /** The other episodes that were sampled of the same task at the same time. */
  samples(row) {
    const same = this.rows.filter((other) => other.task === row.task && other.source === row.source && other.iteration === row.iteration).sort((a, b) => a.sample - b.sample);
    if (same.length < 2) return null;
    return el("div", { class: "samples", role: "group", "aria-label": "Samples of this task" }, "samples", same.map((other) =>
      el("button", { type: "button", "aria-pressed": String(other === row), "data-keep": `s${other.sample}`, onclick: () => this.choose(other) }, pip(other), `${other.sample + 1}`)));
  }

  /** All episodes of this task that the run's own policies played, in the order of training. */
  sameTask(row) {
    return this.rows.filter((other) => other.task === row.task && row.sample === other.sample && (!other.others || other === row))
      .sort((a, b) => (a.iteration ?? 1e9) - (b.iteration ?? 1e9) || a.source - b.source);
  }

  /** A slider over them. */
  moments(row) {
    const same = this.sameTask(row);
    if (same.length < 2) return null;
    const at = same.indexOf(row);
    const dots = same.map((other, i) => el("i", { class: `moment ${other.tree ? "tree " : ""}${{ solved: "won", failed: "lost" }[outcome(other)] ?? "mixed"}${i === at ? " now" : ""}`, style: `left:${100 * i / (same.length - 1)}%` }));
    const slider = el("input", { type: "range", min: 0, max: same.length - 1, value: at, step: 1, "data-keep": "moments", "aria-label": "The same task over training", "aria-valuetext": `${this.place(row)}, ${OUTCOMES[outcome(row)]}`,
      oninput: (event) => this.choose(same[Number(event.target.value)], { node: 0, focus: false }) });
    const kinds = same.some((other) => other.tree) && same.some((other) => !other.tree) &&
      el("p", { class: "moments-key" }, el("span", {}, el("i", { class: "moment tree" }), "training tree"), el("span", {}, el("i", { class: "moment" }), "evaluated episode: one message per prompt"));
    return el("div", { class: "moments" }, el("span", { class: "moments-title" }, "This task over training"),
      el("div", { class: "slider" }, el("div", { class: "moment-dots", "aria-hidden": "true" }, dots), slider), el("output", {}, this.place(row)), kinds);
  }

  map(tree) {
    if (!tree.nodes.length) return el("p", { class: "empty" }, "This episode has no messages.");
    const key = (kind, text, r = 5) => el("span", {}, svg("svg", { width: 16, height: 16, "aria-hidden": "true" }, svg("circle", { class: kind, "--m": 0.6, cx: 8, cy: 8, r })), text);
    const judged = this.largest > 0 && el("p", { class: "map-key" }, key("dot above", "above the baseline"), key("dot below", "below it"), key("dot even", "no advantage"), key("on", "went on", 2.5), key("ring", "selected", 6.5));
    return el("div", { class: "map-frame" }, el("div", { class: "map-box", tabindex: 0, role: "group", "aria-label": "Map of the episode: left and right choose a candidate, up and down a prompt", "data-keep": "map" },
      drawMap(tree, this.form, this.state, (node, candidate) => this.select(node, candidate))), judged);
  }

  detail(tree) {
    const node = tree.nodes[this.state.node];
    const parent = this.form.above.get(this.form.stepOf.get(node.id).first);
    const policy = tree.policies?.[node.agent];
    return el("section", { class: `prompt-part ${agentClass(node.agent)}`, "aria-label": `Turn ${node.turn + 1}, ${node.agent}` },
      el("div", { class: "place" }, el("h4", {}, `Turn ${node.turn + 1} · `, el("b", {}, node.agent)), node.session ? el("small", {}, `session ${node.session}`) : null,
        policy ? el("small", {}, `policy ${policy}${finite(node.candidates[0]?.version) ? `, version ${node.candidates[0].version}` : ""}`) : null,
        el("span", { class: "grow" }), this.steps(parent), this.modes(tree)),
      el("div", { class: "seen" },
        drawPicture(tree.pictures?.[node.picture], "The world before the message"),
        el("details", { class: "prompt", open: node.prompt.length < 1200 || (list.words() && holds(node.prompt, list.words())) },
          el("summary", {}, tree.tree_format ? "Prompt" : "Observation", el("small", {}, `${tree.tree_format ? " as the model read it" : ""}${node.prompt_tokens ? `, ${count(node.prompt_tokens, "token")}` : ""}${node.cut ? ", cut to the context" : ""}${finite(node.seconds) ? `, answered in ${node.seconds.toPrecision(2)} s${finite(node.waited) ? `: ${Math.min(node.waited, node.seconds).toPrecision(2)} s in the queue, then generated` : ""}` : ""}`)),
          el("pre", {}, marked(node.prompt || "(not known as text)", list.words())))),
      this.mode === "words" ? el("p", { class: "note legend-line" }, `Each message beside that of ${this.before.place}, in the same turn: `, el("span", { class: "spoken" }, el("ins", {}, "new"), " ", el("del", {}, "gone"))) :
      this.mode === "plain" ? null : el("p", { class: "note legend-line" }, MODES[this.mode].note, MODES[this.mode].signed ? el("span", { class: "ramp", "aria-hidden": "true" }, "− 0 +") : null),
      el("div", { class: "candidates", role: "group", "aria-label": `${count(node.candidates.length, "candidate")} for this prompt` },
        node.candidates.map((candidate, c) => this.card(tree, node, candidate, c))));
  }

  /** Buttons along the path. */
  steps(parent) {
    const path = pathThrough(this.form, this.state.node), at = path.indexOf(this.state.node);
    const button = (sign, label, to) => el("button", { type: "button", class: "step", "aria-label": label, title: label, disabled: to === undefined, "data-keep": label, onclick: () => this.select(to) }, sign);
    const back = parent && Object.values(parent.edge.members).at(-1);
    return el("span", { class: "steps" }, button("‹", "Previous prompt", at > 0 ? path[at - 1] : back?.[0]), button("›", "Next prompt", path[at + 1]));
  }

  modesOf(tree) {
    return [...modesOf(tree), ...(this.before ? ["words"] : [])];
  }

  /** What the same agent said in the same turn at the moment before; undefined where it did not speak. */
  saidBefore({ agent, turn }) {
    return this.before?.tree.nodes.find((node) => node.agent === agent && node.turn === turn)?.candidates.find((candidate) => candidate.continued)?.text;
  }

  modes(tree) {
    const modes = this.modesOf(tree);
    if (modes.length < 2) return null;
    return el("select", { class: "mode", "aria-label": "Colour of the tokens", "data-keep": "mode", onchange: (event) => this.setMode(event.target.value) },
      modes.map((mode) => el("option", { value: mode, selected: mode === this.mode }, mode === "plain" ? "plain text" : mode === "words" ? "words changed since before" : `tokens by ${MODES[mode].title.toLowerCase()}`)));
  }

  setMode(mode) {
    this.mode = mode;
    this.render();
  }

  card(tree, node, candidate, c) {
    const chosen = c === this.state.candidate, colour = tint(candidate.advantage, this.largest);
    return el("article", { ...colour, class: `candidate ${colour.class}${chosen ? " chosen" : ""}`, tabindex: chosen ? 0 : -1, "aria-current": chosen ? "true" : null, "data-keep": `c${c}`,
      "aria-label": `Candidate ${c + 1}${candidate.continued ? ", went on" : ""}`, onclick: () => { if (c !== this.state.candidate && !String(getSelection())) this.select(node.id, c); } },
      el("header", {}, el("span", { class: "number" }, `${c + 1}`), candidate.continued && node.candidates.length > 1 ? el("span", { class: "went-on" }, "went on") : null, el("span", { class: "grow" }),
        finite(candidate.advantage) ? el("span", { class: "advantage", title: "advantage" }, digits(candidate.advantage, true)) : null),
      this.mode === "words" ? changedText(this.saidBefore(node), candidate.text) : spokenText(candidate, this.mode, this.largest, (i) => this.pickToken(c, i)), this.numbers(candidate), this.whatFollowed(tree, node, candidate, c));
  }

  /** Shows what is known of token `i` of candidate `c`, below its message; the other candidates keep their lines. */
  pickToken(c, i) {
    if (c !== this.state.candidate) this.select(this.state.node, c);
    const candidate = this.tree.nodes[this.state.node].candidates[c], card = this.box.querySelectorAll(".candidate")[c];
    const tokens = card.querySelectorAll(".token"), at = Math.min(tokens.length - 1, Math.max(0, i));
    if (!tokens.length) return;
    card.querySelector(".token.picked")?.classList.remove("picked");
    tokens[at].classList.add("picked");
    tokens[at].scrollIntoView({ block: "nearest", inline: "nearest" });
    const lines = tokenLines(candidate, at, tokenValues(candidate, this.mode)[at], this.mode);
    card.querySelector(".token-line").replaceChildren(el("code", {}, candidate.tokens[at]), ` ${lines.join("; ")}`);
    this.voice.textContent = `${candidate.tokens[at]}, ${lines.join(", ")}`;
  }

  /** The next or the previous token of the chosen candidate; the first step is to its first token. */
  moveToken(by) {
    const tokens = [...this.box.querySelectorAll(".candidate.chosen .token")];
    const at = tokens.findIndex((token) => token.classList.contains("picked"));
    if (tokens.length) this.pickToken(this.state.candidate, at < 0 ? 0 : at + by);
  }

  numbers(candidate) {
    const length = candidate.length ?? candidate.token_ids?.length;
    const parts = [["reward", candidate.reward], ["outcome", candidate.team], ["own outcome", candidate.own_outcome], ["local", candidate.local], ["return from here", candidate.value === candidate.reward ? undefined : candidate.value], ["baseline", candidate.baseline], ["length penalty", candidate.overlong || undefined]]
      .filter(([, value]) => finite(value)).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, digits(value))));
    for (const [name, value] of Object.entries(candidate.info ?? {})) if (finite(value) && value) parts.push(el("div", {}, el("dt", {}, name.replace(/_s$/, ", s").replaceAll("_", " ")), el("dd", {}, digits(value))));
    if (finite(length)) parts.push(el("div", {}, el("dt", {}, "tokens"), el("dd", {}, `${length}`)));
    const flags = Object.entries(candidate.info ?? {}).filter(([, value]) => value === true).map(([name]) => name.replaceAll("_", " "));
    if (candidate.finish_reason === "length") flags.push("cut off");
    const { value, baseline, scale, advantage } = candidate;
    const sum = finite(advantage) && finite(value) && finite(scale) && el("p", { class: "sum", title: "(reward, or return from here, less the baseline), over the scale of the credit rule" },
      `(${digits(value)} − ${digits(baseline)})${scale === 1 ? "" : ` / ${digits(scale)}`} = ${digits(advantage, true)}`);
    return el("div", { class: "numbers" }, el("dl", {}, parts), sum, flags.length ? el("p", { class: "flags" }, flags.join(", ")) : null);
  }

  /** What the candidate led to, or would have: the world after it, the outcome, the rest of the tree. */
  whatFollowed(tree, node, candidate, c) {
    const edge = edgeOf(this.form, node.id, c), followed = candidate.next, end = edge?.outcome;
    const child = edge && this.form.stepOf.has(edge.child) ? edge.child : undefined;
    if (!followed && !end && child === undefined) return null;
    const success = end?.success ?? (followed?.done ? followed.success : undefined);
    const text = success === true ? "solved" : success === false ? "ended, not solved" : child !== undefined ? "the episode went on" : "not over: the team went on from another candidate";
    const open = !candidate.continued && success === undefined && child === undefined && tree.tree_format !== undefined;
    const lead = candidate.continued ? "Then: " : "What if: ";
    const moved = followed?.picture !== node.picture;  // a message may not act on the world
    return el("footer", { class: "followed" }, moved ? drawPicture(tree.pictures?.[followed?.picture], "The world after the message", tree.pictures[node.picture]) : null,
      el("div", {}, el("p", {}, el("small", {}, lead), el("span", { class: success === undefined ? "" : success ? "solved" : "failed" }, text), end ? el("small", {}, ` · ${count(end.turns, "turn")}, return ${digits(end.team_return)}`) : null),
        child === undefined ? null : el("button", { type: "button", class: "follow", onclick: (event) => { event.stopPropagation(); this.select(child, undefined, true); } }, `${tree.nodes[child].agent} answers →`),
        open ? el("button", { type: "button", class: "follow", "data-keep": `replay${c}`, "aria-label": `Copy replay command of candidate ${c + 1}`, title: `${replayCommand(this.row, node.id, c)}\nThe weights ${moment(this.row.iteration)} are not kept: those of the checkpoint best play, unless checkpoint=… names others.`,
          onclick: (event) => { event.stopPropagation(); this.copy(replayCommand(this.row, node.id, c), "copied: run it in the run's folder", replayCommand(this.row, node.id, c), event.target.parentNode); } }, "Copy replay command") : null));
  }

  onKey(event) {
    if (!this.tree) return;
    const { node, candidate } = this.state, path = this.tree ? pathThrough(this.form, node) : [], at = path.indexOf(node);
    const all = this.tree?.nodes[node]?.candidates.length ?? 0;
    const to = { ArrowLeft: [node, candidate - 1], ArrowRight: [node, candidate + 1], ArrowUp: [path[at - 1]], ArrowDown: [path[at + 1]] }[event.key];
    const child = event.key === "Enter" && all ? edgeOf(this.form, node, candidate)?.child : undefined;
    if (event.key === "Enter" && all && child === undefined && event.target.closest(".candidate, .map-box, #stage") && !event.target.closest("button, summary, select")) return this.endsHere();
    if (child !== undefined && this.form.stepOf.has(child) && !event.target.closest("button, summary, select")) return this.moveTo(event, child);
    if (!to || to[0] === undefined || to[1] < 0 || to[1] >= all) return;
    this.moveTo(event, ...to);
  }

  /** Says that there is nothing to follow from the chosen candidate. */
  endsHere() {
    this.voice.textContent = this.tree.nodes[this.state.node].candidates[this.state.candidate].continued ? "the episode ended here" : "it did not go on: nothing follows";
    const card = this.box.querySelector(".candidate.chosen");
    (card.querySelector(".ends") ?? card.appendChild(el("p", { class: "ends note" }))).textContent = this.voice.textContent;
  }

  moveTo(event, node, candidate) {
    event.preventDefault();
    this.select(node, candidate, !event.target.closest(".map-box"));
  }
}
