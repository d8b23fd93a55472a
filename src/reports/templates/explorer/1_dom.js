// Elements and texts.  Everything a model wrote becomes a text node; nothing here parses HTML.
const SVG = "http://www.w3.org/2000/svg";

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Whether `text` contains `words`, which are in small letters. */
const holds = (text, words) => text.toLowerCase().includes(words);

/** `text` in pieces, with `words` marked where there are any. */
function marked(text, words) {
  if (!words) return [text];
  const pieces = text.split(new RegExp(`(${words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")})`, "gi"));
  return pieces.map((piece, i) => i % 2 ? el("mark", {}, piece) : piece);
}

const finite = (value) => typeof value === "number" && Number.isFinite(value);

/** Three significant digits, with a true minus sign. */
function digits(value, signed = false) {
  if (!finite(value)) return "–";
  const size = Math.abs(value);
  const text = size === 0 ? "0" : size < 1e-4 ? size.toExponential(1) : size >= 1e4 ? `${Number((size / 1e3).toPrecision(3))}k` : `${Number(size.toPrecision(3))}`;
  return (value < 0 ? "−" : signed && value > 0 ? "+" : "") + text;
}

const count = (number, noun) => !finite(number) ? `? ${noun}s` : `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;

/** When in training an episode of the run itself was played; later evaluations say whose weights they had. */
const moment = (iteration) => iteration === null ? "best on validation" : iteration === 0 ? "before training" : `after ${count(iteration, "iteration")}`;

/** The colour of a signed value: its hue says the sign, its strength the size; `--m` is in [0, 1]. */
function tint(value, largest) {
  if (!finite(value) || value === 0 || !largest) return { class: "even", "--m": 0 };
  return { class: value > 0 ? "above" : "below", "--m": Math.min(1, Math.abs(value) / largest).toFixed(3) };
}
