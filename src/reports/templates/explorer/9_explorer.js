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

/** The row, node and candidate that the address names; undefined where it names no episode, without a row one that is
 * not there. */
function readHash(rows) {
  if (!location.hash.startsWith("#/")) return undefined;
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

/** Says what of a link is not there; "" where all is. */
function noteLink(text) {
  const note = document.getElementById("link-note");
  note.textContent = text;
  note.hidden = !text;
}

async function openEpisode(row, { node, candidate, focus = false } = {}) {
  noteLink("");
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
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input:not([type=range]), textarea")) return;
  const does = { j: () => list.move(1, { focus: true }), k: () => list.move(-1, { focus: true }), ".": () => stage.moveToken(1), ",": () => stage.moveToken(-1), "/": () => list.controls.words.focus() }[event.key];
  if (does) {
    event.preventDefault();  // a letter would choose in a list of options
    does();
  } else if (!event.target.closest?.("input, select") && stage.box.contains(event.target)) stage.onKey(event);
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
  const searched = () => {
    const row = list.shown.find((each) => each.id === list.chosen) ?? list.shown[0];
    if (list.words() && row) openEpisode(row);
    else if (stage.tree) stage.render();
  };
  list = new EpisodeList(index, (row, options) => openEpisode(row, options), searched);
  stage = new Stage(index, (row, options) => openEpisode(row, options));
  document.addEventListener("keydown", onPageKey);
  const follow = async () => {
    const link = readHash(index.rows);
    if (!link) return;
    const { row, node, candidate } = link;
    if (row) await openEpisode(row, { node, candidate });
    else if (!stage.row) await openEpisode(mostTelling(list.shown));
    if (!row) noteLink("The link names an episode that this page does not have.");
    else if (stage.row === row && (stage.state.node !== node || (candidate !== undefined && stage.state.candidate !== candidate))) noteLink("The link names a message that this episode does not have: another one is shown.");
    section.scrollIntoView();
  };
  window.addEventListener("hashchange", follow);
  await follow();
  if (!stage.row) await openEpisode(mostTelling(list.shown));
  section.dataset.ready = "true";
  performance.mark("explorer-ready");
}

startExplorer();
