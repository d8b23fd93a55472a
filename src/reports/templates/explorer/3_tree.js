// A tree's shape: steps (the nodes of the agents that act at once), their joint actions, and what these lead to.
function shape(tree) {
  const steps = new Map();  // by the number of their first node
  for (const edge of tree.edges) {
    const nodes = Object.values(edge.members).map(([node]) => node);
    const first = Math.min(...nodes);
    if (!steps.has(first)) steps.set(first, { first, nodes: [...nodes].sort((a, b) => a - b), edges: [] });
    steps.get(first).edges.push(edge);
  }
  tree.nodes.forEach((node) => {  // of a tree that is cut short
    if (![...steps.values()].some((step) => step.nodes.includes(node.id))) steps.set(node.id, { first: node.id, nodes: [node.id], edges: [] });
  });
  const stepOf = new Map();
  for (const step of steps.values()) for (const node of step.nodes) stepOf.set(node, step);
  const above = new Map();  // by a step's first node: the joint action that led there
  for (const step of steps.values()) for (const edge of step.edges) if (stepOf.has(edge.child)) above.set(stepOf.get(edge.child).first, { step, edge });
  return { steps, stepOf, above };
}

const wentOn = (edge) => edge.child !== undefined || edge.outcome !== undefined;

/** The joint action of a candidate: one that went on, where there is one. */
function edgeOf(form, node, candidate) {
  const edges = form.stepOf.get(node).edges.filter((edge) => Object.values(edge.members).some(([n, c]) => n === node && c === candidate));
  return edges.find(wentOn) ?? edges[0];
}

/** The nodes from the start through `node`, and on along the first joint action that went on. */
function pathThrough(form, node) {
  const steps = [];
  for (let step = form.stepOf.get(node); step; step = form.above.get(step.first)?.step) steps.unshift(step);
  for (let last = steps.at(-1); last;) {
    const next = last.edges.find((edge) => form.stepOf.has(edge.child));
    last = next && form.stepOf.get(next.child);
    if (last && steps.includes(last)) break;
    if (last) steps.push(last);
  }
  return steps.flatMap((step) => step.nodes);
}

const strength = (node) => Math.max(0, ...node.candidates.map((c) => Math.abs(c.advantage ?? 0)));
const largestAdvantage = (tree) => Math.max(0, ...tree.nodes.map(strength));

/** Where an episode opens: at the first message that contains the `words` of a search, or else the first prompt; without
 * a search at the prompt with the largest advantage. */
function opening(tree, words) {
  for (const node of words ? tree.nodes : []) {
    const candidate = node.candidates.findIndex(({ text }) => holds(text, words));
    if (candidate >= 0) return { node: node.id, candidate };
  }
  const read = words && tree.nodes.find((node) => holds(node.prompt, words));
  return { node: (read || tree.nodes.reduce((best, node) => strength(node) > strength(best) ? node : best, tree.nodes[0]))?.id ?? 0 };
}
