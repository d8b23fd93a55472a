// The settings that are shown: a button each; with Shift or Alt, that one alone.
const chips = document.getElementById("settings");
const buttons = [...chips.querySelectorAll("button")];
const shown = (button) => button.getAttribute("aria-pressed") === "true";

function set(button, on) {
  button.setAttribute("aria-pressed", String(on));
  document.documentElement.classList.toggle(`hide-${button.dataset.place}`, !on);
}

if (buttons.length > 1) {
  chips.hidden = false;
  buttons.forEach((button) => button.addEventListener("click", (event) => {
    if (event.shiftKey || event.altKey) {
      const alone = shown(button) && buttons.every((other) => other === button || !shown(other));
      buttons.forEach((other) => set(other, alone || other === button));
    } else {
      set(button, !shown(button));
    }
  }));
}
