// The episodes inside this page: compressed chunks, each opened when an episode of it is first shown.
const OPEN_CHUNKS = 16;
const chunks = new Map();

async function unpack(id) {
  const text = document.getElementById(id).textContent;
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

async function openChunk(number) {
  const known = chunks.get(number);
  chunks.delete(number);
  const chunk = known ?? unpack(`chunk-${number}`);
  chunks.set(number, chunk);  // the last one is the most recently used
  if (chunks.size > OPEN_CHUNKS) chunks.delete(chunks.keys().next().value);
  return chunk;
}

/** The list's rows, from the index that src/reports/explorer.py writes. */
async function readIndex() {
  const { sources, weights, others, rows, tasks, agents, kinds } = await unpack("index");
  const named = rows.map(([source, iteration, task, sample, success, reward, turns, length, advantage, watched, own, faults, chunk, place], id) =>
    ({ id, source, iteration, later: weights[source] !== null, when: weights[source] ?? moment(iteration), others: others[source], tree: source === 0, task: tasks[task], sample, success, reward, turns, length, advantage, watched, own, faults, chunk, place }));
  return { sources, rows: named, agents, kinds };
}

const readTree = async (row) => (await openChunk(row.chunk))[row.place];

/** The ids of the rows whose messages contain `words`; `more` says whether the search still matters. */
async function searchMessages(rows, words, more) {
  const found = new Set();
  for (let number = 0; number <= Math.max(-1, ...rows.map((row) => row.chunk)); number++) {
    const trees = await openChunk(number);
    if (!more()) return null;
    for (const row of rows) {
      if (row.chunk === number && contains(trees[row.place], words)) found.add(row.id);
    }
  }
  return found;
}

function contains(tree, words) {
  return tree.nodes.some((node) => holds(node.prompt, words) || node.candidates.some(({ text }) => holds(text, words)));
}
