// The page can be read without this script: then all episodes stand below each other.
const root = document.documentElement;
const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const dark = root.style.colorScheme ? root.style.colorScheme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.style.colorScheme = dark ? "light" : "dark";
});

const links = [...document.querySelectorAll(".viewer nav a")];
const articles = [...document.querySelectorAll(".stage article")];
const filters = [...document.querySelectorAll(".filters button")];

function show(chosen) {
  links.forEach((link, i) => link.setAttribute("aria-current", String(i === chosen)));
  articles.forEach((article, i) => { article.hidden = i !== chosen; });
}

function filter(button) {
  const kind = button.dataset.kind;
  filters.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
  links.forEach((link) => { link.hidden = kind !== "" && link.dataset.kind !== kind; });
  const current = links.findIndex((link) => link.getAttribute("aria-current") === "true" && !link.hidden);
  show(current >= 0 ? current : links.findIndex((link) => !link.hidden));
}

if (links.length) {
  root.classList.add("js");
  document.querySelector(".filters").hidden = false;
  links.forEach((link, i) => link.addEventListener("click", (event) => { event.preventDefault(); show(i); }));
  filters.forEach((button) => button.addEventListener("click", () => filter(button)));
  const linked = articles.findIndex((article) => `#${article.id}` === location.hash);
  show(Math.max(0, linked));
}
