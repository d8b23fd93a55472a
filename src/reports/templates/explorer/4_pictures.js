// The world's pictures: rows of characters drawn as a board, or an SVG that the world drew, rebuilt from what such a
// picture may hold, so that nothing else of it reaches the page.
const SHAPES = new Set("svg g rect circle ellipse line polyline polygon path text tspan title desc".split(" "));
const TRAITS = new Set(("viewBox x y x1 y1 x2 y2 cx cy r rx ry d points width height transform fill fill-opacity fill-rule stroke stroke-width stroke-linecap " +
  "stroke-linejoin stroke-opacity stroke-dasharray opacity font-size font-weight font-family text-anchor dominant-baseline dx dy").split(" "));

const ACTIVE = /[\s/"']on\w+\s*=|<\s*(script|style|foreignobject|a)\b|<[!?]|javascript:/i;  // no world's picture has such: its text is shown

/** A picture, or null; of one in words, after another, the lines from the first that differs on. */
function drawPicture(picture, label, earlier = undefined) {
  if (!picture) return null;
  const drawn = picture.svg && !ACTIVE.test(picture.svg) && rebuilt(new DOMParser().parseFromString(picture.svg, "image/svg+xml").documentElement);
  if (drawn && !isText(drawn)) return fill(drawn, { class: "drawing", role: "img", "aria-label": `${label}: ${picture.text}` }, []);
  const rows = picture.text.split("\n");
  if (!isBoard(rows)) {
    const known = earlier?.text.split("\n") ?? [], same = rows.findIndex((row, i) => row !== known[i]);
    return el("pre", { class: "drawn", role: "img", "aria-label": `${label}: ${picture.text}` }, rows.slice(Math.max(0, same)).join("\n"));
  }
  const width = Math.max(...rows.map((row) => row.length));
  const board = svg("svg", { class: "picture", viewBox: `0 0 ${width} ${rows.length}`, role: "img", "aria-label": `${label}: ${rows.join(" / ")}` },
    svg("rect", { class: "floor", width, height: rows.length }));
  rows.forEach((row, y) => [...row].forEach((sign, x) => board.append(...cell(sign, x, y))));
  return board;
}

/** Whether a drawing is lines of words: these are read as text, in letters of the page's size. */
const isText = (drawing) => !drawing.querySelector("circle, ellipse, line, polyline, polygon, path") &&
  [...drawing.querySelectorAll("text")].reduce((letters, { textContent }) => letters + textContent.length, 0) >= 40;

/** A copy of `element` with known shapes and plain values alone; null where it is another kind of thing. */
function rebuilt(element) {
  if (element.namespaceURI !== SVG || !SHAPES.has(element.localName)) return null;
  const traits = [...element.attributes].filter(({ name, value }) => TRAITS.has(name) && !/url\(|[<>]|:/i.test(value));
  const children = [...element.childNodes].map((child) => child.nodeType === Node.TEXT_NODE ? child.data : child.nodeType === Node.ELEMENT_NODE ? rebuilt(child) : null);
  return svg(element.localName, Object.fromEntries(traits.map(({ name, value }) => [name, value])), children);
}

const isBoard = (rows) => rows.length > 1 && rows.length <= 40 && rows.every((row) => row.length === rows[0].length) && rows[0].length <= 40;

function cell(sign, x, y) {
  const shapes = [];
  if (sign === " ") return shapes;
  if (sign === "#") return [svg("rect", { class: "wall", x, y, width: 1, height: 1 })];
  if (".*+".includes(sign)) shapes.push(svg("circle", { class: "goal", cx: x + 0.5, cy: y + 0.5, r: 0.3 }));
  if ("$*".includes(sign)) shapes.push(svg("rect", { class: sign === "*" ? "box home" : "box", x: x + 0.16, y: y + 0.16, width: 0.68, height: 0.68, rx: 0.1 }));
  if ("@+".includes(sign)) shapes.push(svg("circle", { class: "worker", cx: x + 0.5, cy: y + 0.5, r: 0.24 }));
  if (!".*+$@".includes(sign)) shapes.push(svg("text", { x: x + 0.5, y: y + 0.78 }, sign));
  return shapes;
}
