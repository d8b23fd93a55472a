// The map of a tree: steps from left to right, a column of candidates for each agent, the path that went on as a line.
const DOT = 7, AGENT = 48, STEP = 34, TOP = 40;
const ROW = matchMedia("(pointer: coarse)").matches ? 28 : 21;  // a finger is wider than a mouse's arrow

function drawMap(tree, form, state, choose) {
  const roots = [...form.steps.values()].filter((step) => !form.above.has(step.first));
  const places = new Map();
  let bottom = TOP, right = 0;
  const lay = (step, x) => {  // the step's candidates stand beside the middle of what follows
    const height = Math.max(...step.nodes.map((node) => tree.nodes[node].candidates.length)) * ROW;
    const from = bottom, next = x + step.nodes.length * AGENT + STEP;
    for (const edge of step.edges) if (form.stepOf.has(edge.child) && !places.has(edge.child)) lay(form.stepOf.get(edge.child), next);
    bottom = Math.max(bottom, from + height + 8);
    places.set(step.first, { x, y: from + Math.max(0, (bottom - 8 - from - height) / 2) });
    right = Math.max(right, next);
  };
  roots.forEach((step) => lay(step, 26));
  const point = (node, candidate) => {
    const step = form.stepOf.get(node), place = places.get(step.first);
    return [place.x + step.nodes.indexOf(node) * AGENT, place.y + candidate * ROW + ROW / 2];
  };
  const largest = largestAdvantage(tree);
  const drawing = svg("svg", { class: "map", width: right + 34, height: bottom, viewBox: `0 0 ${right + 34} ${bottom}`, role: "img",
    "aria-label": `Map of the episode: ${count(tree.nodes.length, "prompt")}; choose one with the arrow keys or below` });
  drawing.append(...turnLabels(tree, form, places), ...links(tree, form, point));
  for (const node of tree.nodes) {
    node.candidates.forEach((candidate, c) => {
      const [cx, cy] = point(node.id, c), chosen = state.node === node.id && state.candidate === c;
      const colour = tint(candidate.advantage, largest);
      drawing.append(svg("g", { class: "place", onclick: () => choose(node.id, c) },
        svg("rect", { x: cx - AGENT / 2, y: cy - ROW / 2, width: AGENT, height: ROW }),
        svg("circle", { ...colour, cx, cy, r: DOT, class: `dot ${colour.class}${chosen ? " chosen" : ""}` }),
        candidate.continued ? svg("circle", { class: "on", cx, cy, r: 2.5 }) : null, chosen ? svg("circle", { class: "ring", cx, cy, r: DOT + 2.5 }) : null,
        svg("title", {}, `${node.agent}${node.session ? `, session ${node.session}` : ""}, turn ${node.turn + 1}, candidate ${c + 1}: reward ${digits(candidate.reward ?? candidate.team)}${finite(candidate.advantage) ? `, advantage ${digits(candidate.advantage, true)}` : ""}`)));
    });
  }
  return drawing;
}

function turnLabels(tree, form, places) {
  const labels = new Map();
  for (const step of form.steps.values()) {
    const { x } = places.get(step.first), turn = tree.nodes[step.first].turn;
    if (!labels.has(`t${turn}`) && step.nodes.length) labels.set(`t${turn}`, svg("text", { class: "turn-label", x: x - DOT, y: 13 }, `turn ${turn + 1}`));
    const most = step.nodes.length === 1 ? 11 : 7;  // letters; one agent alone has the room of its line to the next step
    step.nodes.forEach((node, i) => {
      const at = x + i * AGENT, name = tree.nodes[node].agent;
      labels.set(`a${at}`, svg("text", { class: `agent-label ${agentClass(name)}`, x: at, y: 30 }, name.length > most ? `${name.slice(0, most - 1)}…` : name));
    });
  }
  return [...labels.values()];
}

/** Lines from each joint action that went on to the next step, or to its end. */
function links(tree, form, point) {
  const lines = [];
  for (const step of form.steps.values()) {
    for (const edge of step.edges.filter(wentOn)) {
      const members = Object.values(edge.members).sort(([a], [b]) => a - b);
      const points = members.map(([node, candidate]) => point(node, candidate));
      const child = form.stepOf.get(edge.child);
      const single = child && (child.edges.find(wentOn) ?? { members: { first: [child.first, 0] } });
      if (child) points.push(point(...Object.values(single.members).sort(([a], [b]) => a - b)[0]));
      const [x, y] = points.at(-1);
      if (edge.outcome) points.push([x + STEP - 6, y]);
      lines.push(svg("path", { class: "link", d: curve(points) }));
      if (edge.outcome) lines.push(ending(edge.outcome, x + STEP + 4, y));
    }
  }
  return lines;
}

const curve = (points) => points.slice(1).reduce((path, [x, y], i) => {
  const [fromX, fromY] = points[i], middle = (fromX + x) / 2;
  return `${path} C${middle} ${fromY} ${middle} ${y} ${x} ${y}`;
}, `M${points[0].join(" ")}`);

/** A full disc with a tick for success, an empty one with a cross for failure. */
function ending(outcome, x, y) {
  return svg("g", { class: outcome.success ? "ending won" : "ending lost" },
    svg("circle", { cx: x, cy: y, r: 8 }),
    svg("path", { d: outcome.success ? `M${x - 4} ${y} l3 3 l5 -6` : `M${x - 3} ${y - 3} l6 6 m0 -6 l-6 6` }),
    svg("title", {}, `${outcome.success ? "solved" : "not solved"} after ${count(outcome.turns, "turn")}, return ${digits(outcome.team_return)}`));
}
