// A candidate's text, plain or with a colour for each token.
const MODES = {
  plain: { title: "Text" },
  advantage: { title: "Advantage", signed: true, note: "The advantage of the token: that of its message, less its own penalty." },
  surprise: { title: "Surprise", note: "−log p of the policy that sampled: the stronger the colour, the less likely the token." },
  mismatch: { title: "Ratio", signed: true, note: "log(learner / engine) before the update: blue, the learner finds the token likelier." },
  change: { title: "Update", signed: true, note: "log(after / before) of this iteration's update: blue tokens became likelier." },
};
const LARGEST = { surprise: 4, mismatch: 0.2, change: 1 };

function tokenValues(candidate, mode) {
  const { logprobs = [], learner_logprobs: before, updated_logprobs: after, penalties } = candidate;
  if (mode === "surprise") return logprobs.map((value) => -value);
  if (mode === "mismatch") return before?.map((value, i) => value - logprobs[i]);
  if (mode === "change") return after?.map((value, i) => value - before[i]);
  if (mode === "advantage" && finite(candidate.advantage)) return candidate.tokens?.map((_, i) => candidate.advantage - (penalties?.[i] ?? 0));
  return undefined;
}

/** The ways to colour that this tree has the numbers for. */
function modesOf(tree) {
  const candidates = tree.nodes.flatMap((node) => node.candidates).filter((candidate) => candidate.tokens?.length);
  return Object.keys(MODES).filter((mode) => mode === "plain" || candidates.some((candidate) => tokenValues(candidate, mode)?.length));
}

/** The text of a candidate; in colours, with a line about one token below it, which `pick` chooses. */
function spokenText(candidate, mode, largest, pick) {
  const values = tokenValues(candidate, mode);
  const tokens = candidate.tokens ?? [];
  if (!values || values.length !== tokens.length || !tokens.length) {
    return el("pre", { class: "spoken" }, candidate.text.trim() ? marked(candidate.text, list.words()) : el("i", {}, "(nothing)"));
  }
  const scale = LARGEST[mode] ?? largest;
  const spans = tokens.map((text, i) => {
    const colour = MODES[mode].signed ? tint(values[i], scale) : { class: "unlikely", "--m": Math.min(1, values[i] / scale).toFixed(3) };
    const span = document.createElement("span");  // a message may have thousands
    span.className = `token ${colour.class}`;
    span.style.setProperty("--m", colour["--m"]);  // also 0: it would have that of its candidate
    span.textContent = text;
    return span;
  });
  const at = (event) => spans.indexOf(event.target.closest(".token"));
  const name = (event) => { const i = at(event); if (i >= 0 && !spans[i].title) spans[i].title = tokenLines(candidate, i, values[i], mode).join("\n"); };
  return el("div", { class: "spoken-part" },
    el("pre", { class: "spoken tokens", onmouseover: name, onclick: (event) => { const i = at(event); if (i >= 0) { event.stopPropagation(); pick(i); } } }, spans),
    el("p", { class: "token-line" }, summary(values, mode)));
}

/** The mean over a message, and its strongest token. */
function summary(values, mode) {
  const strongest = values.reduce((best, value, i) => Math.abs(value) > Math.abs(values[best]) ? i : best, 0);
  const sum = values.reduce((sum, value) => sum + value, 0);
  const mean = Math.abs(sum) > 1e-9 * Math.abs(values[strongest]) ? sum / values.length : 0; // less is rounding
  const text = (value) => digits(value, MODES[mode].signed);
  const same = values.every((value) => value === values[0]);
  return same ? `each token ${text(mean)}` : `mean ${text(mean)}, strongest ${text(values[strongest])} at token ${strongest + 1}`;
}

function tokenLines(candidate, i, value, mode) {
  const p = (logprobs) => `${(100 * Math.exp(logprobs[i])).toPrecision(3)} %`;
  const { logprobs, learner_logprobs: before, updated_logprobs: after } = candidate;
  const lines = [`token ${i + 1} of ${candidate.tokens.length}, id ${candidate.token_ids[i]}`, `sampled with p = ${p(logprobs)}`];
  if (before) lines.push(`learner before the update: ${p(before)}`, `importance ratio: ${digits(Math.exp(before[i] - logprobs[i]))}`);
  if (after) lines.push(`after it: ${p(after)}`);
  return [...lines, `${MODES[mode].title.toLowerCase()}: ${digits(value, MODES[mode].signed)}`];
}

/** `after` with the words that are not in `before` and, struck out, those that are gone: a longest common subsequence. */
function changedText(before, after) {
  if (before === undefined) return el("pre", { class: "spoken" }, after, el("i", {}, "\n(nothing was said here before)"));
  const split = (text) => text.match(/\s+|[^\s]+/g) ?? [];
  const a = split(before), b = split(after), most = 1500;
  if (a.length > most || b.length > most) return el("pre", { class: "spoken" }, after, el("i", {}, "\n(too long to compare)"));
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) {
    common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  }
  const pieces = [];
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) { pieces.push(b[j++]); i++; }
    else if (j < b.length && (i === a.length || common[i][j + 1] >= common[i + 1][j])) pieces.push(el("ins", {}, b[j++]));
    else pieces.push(el("del", {}, a[i++]));
  }
  return el("pre", { class: "spoken" }, pieces);
}
