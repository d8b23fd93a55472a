// The explorer as a whole: what is chosen, the address of it, and the keys.
let list, stage;

/** The word of the address for when an episode was played; the title of a later evaluation says the rest. */
const time = (row) => String(row.iteration ?? (row.later ? "later" : "best"));

function address(row, { node, candidate }) {
  const parts = [list.sources[row.source], time(row), row.task, row.sample, node, candidate];
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}

function writeHash(row, state) {
  try {
    history.replaceState(null, "", address(row, state));
  } catch {  // a page inside a sandboxed frame has no address of its own
  }
}

/** The row, node and candidate that the address names; the row is undefined where it names none. */
function readHash(rows) {
  if (!location.hash.startsWith("#/")) return {};
  const [source, iteration, task, sample, node, candidate] = location.hash.slice(2).split("/").map(decoded);
  const row = rows.find((each) => each.task === task && String(each.sample) === sample && list.sources[each.source] === source && time(each) === iteration);
  return { row, node: Number(node ?? 0), candidate: candidate === undefined ? undefined : Number(candidate) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function openEpisode(row, { node, candidate, focus = false } = {}) {
  list.mark(row);
  const another = () => list.chosen !== row.id;  // which was chosen while this one was read
  try {
    await stage.open(row, node, candidate);
  } catch (error) {
    if (!another()) stage.fail(row, error);
    throw error;
  }
  if (another()) return;
  writeHash(row, stage.state);
  if (focus) stage.box.focus({ preventScroll: true });
}

/** What a page opens with: of the training trees that teach something a watched one, which there is over all of training,
 * then the longest, the latest of these. */
function mostTelling(rows) {
  const value = (row) => (row.source === 0 ? 1e7 : 0) + (row.advantage > 0 ? 1e6 : 0) + (row.watched ? 1e5 : 0) + row.turns * 1e3 + (row.iteration ?? 0) / 1e3;
  return rows.reduce((best, row) => value(row) > value(best) ? row : best, rows[0]);
}

function onPageKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea")) return;
  const by = { j: 1, k: -1 }[event.key];
  if (by) list.move(by);
  else if (event.key === "." || event.key === ",") stage.moveToken(event.key === "." ? 1 : -1);
  else if (event.key === "/") { event.preventDefault(); list.controls.words.focus(); }
  else if (stage.box.contains(event.target)) stage.onKey(event);
}

async function startExplorer() {
  const section = document.getElementById("explorer");
  if (!section) return;
  section.hidden = false;
  if (!("DecompressionStream" in window)) {
    section.querySelector(".explorer").replaceChildren(el("p", { class: "empty" }, "This browser cannot open compressed data: a version from 2023 or later can."));
    return;
  }
  const index = await readIndex();
  list = new EpisodeList(index, (row, options) => openEpisode(row, options));
  stage = new Stage(index, (row, options) => openEpisode(row, options));
  document.addEventListener("keydown", onPageKey);
  const follow = async () => {
    const { row, node, candidate } = readHash(index.rows);
    if (row) await openEpisode(row, { node, candidate });
    return Boolean(row);
  };
  window.addEventListener("hashchange", follow);
  const linked = await follow();
  if (linked) section.scrollIntoView();
  else await openEpisode(mostTelling(list.shown));
  section.dataset.ready = "true";
  performance.mark("explorer-ready");
}

startExplorer();
