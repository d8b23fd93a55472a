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

function spokenText(candidate, mode, largest) {
  const values = tokenValues(candidate, mode);
  const tokens = candidate.tokens ?? [];
  if (!values || values.length !== tokens.length || !tokens.length) {
    return el("pre", { class: "spoken" }, candidate.text.trim() ? candidate.text : el("i", {}, "(nothing)"));
  }
  const scale = LARGEST[mode] ?? largest;
  const spans = tokens.map((text, i) => {
    const colour = MODES[mode].signed ? tint(values[i], scale) : { class: "unlikely", "--m": Math.min(1, values[i] / scale).toFixed(3) };
    return el("span", { ...colour, class: `token ${colour.class}`, title: tokenTitle(candidate, i, values[i], mode) }, text);
  });
  return el("pre", { class: "spoken tokens" }, spans);
}

function tokenTitle(candidate, i, value, mode) {
  const p = (logprobs) => `${(100 * Math.exp(logprobs[i])).toPrecision(3)} %`;
  const lines = [`token ${i + 1}, id ${candidate.token_ids[i]}`, `sampled with p = ${p(candidate.logprobs)}`];
  if (candidate.learner_logprobs) lines.push(`learner before the update: ${p(candidate.learner_logprobs)}`);
  if (candidate.updated_logprobs) lines.push(`after it: ${p(candidate.updated_logprobs)}`);
  return [...lines, `${MODES[mode].title}: ${digits(value, MODES[mode].signed)}`].join("\n");
}
