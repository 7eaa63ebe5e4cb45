// What every page of ours does: tables are sorted and filtered, figures drawn when they come into sight, and what is
// chosen in the key (buttons of names) is lit in all of them. Other scripts of the page go through `report`.
"use strict";
const report = (() => {
  const data = JSON.parse(document.getElementById("page-data").textContent);
  const signals = new Map(), views = new Map(), waiting = new Map();

  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };

  // What a figure says where the pointer is; texts of anybody's are only ever text
  const tip = document.body.appendChild(element("div", { class: "tip", role: "tooltip", hidden: "" }));
  const texts = (value) => Object.entries(value).filter(([, text]) => text !== null && text !== undefined && text !== "");
  const tips = new Map();  // figure -> what is said in the place of a value
  const show = (event, value) => {
    tip.hidden = !value;
    if (!value) return;
    const list = element("dl");
    for (const [name, text] of texts(value)) {
      list.append(element("dt", {}, name), element("dd", { dir: "auto" }, String(text)));
    }
    tip.replaceChildren(list);
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${event.clientY + 16 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 16}px`;
  };

  const has = (view, name) => Object.hasOwn(view.getState({ signals: () => true }).signals, name);
  const drawing = new Map();
  const draw = (place) => drawing.get(place) ?? drawing.set(place, drawn(place)).get(place);
  const drawn = async (place) => {
    const { figure, panel } = place.dataset;
    const tooltip = (_, event, item, value) => show(event, value && (tips.get(figure)?.(item.datum) ?? value));
    const how = { mode: "vega", renderer: "svg", actions: false, defaultStyle: false, logLevel: 1, tooltip };
    const { view } = await vegaEmbed(place.appendChild(element("div")), data.figures[figure][panel], how);
    for (const [name, value] of signals) if (has(view, name)) view.signal(name, value);
    await view.runAsync();
    views.set(figure, [...(views.get(figure) ?? []), view]);
    (waiting.get(figure) ?? []).forEach((then) => then(view));
  };

  return {
    data, element, tips, views,
    // A variable of every figure that has it, also of those that are not drawn yet
    signal(name, value) {
      signals.set(name, value);
      for (const view of [...views.values()].flat()) if (has(view, name)) view.signal(name, value).runAsync();
    },
    // Call `then` with each view of a figure, once it is drawn
    when(figure, then) {
      waiting.set(figure, [...(waiting.get(figure) ?? []), then]);
      (views.get(figure) ?? []).forEach(then);
    },
    drawAll: () => Promise.all([...document.querySelectorAll(".plot")].map(draw)),
    start() {
      const seen = new IntersectionObserver((entries) => {
        for (const { isIntersecting, target } of entries) if (isIntersecting) draw(target);
      }, { rootMargin: "300px" });
      document.querySelectorAll(".plot").forEach((place) => seen.observe(place));
      addEventListener("beforeprint", this.drawAll);
      addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
    },
  };
})();

const value = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.sort === undefined ? cell.textContent.trim() : cell.dataset.sort;
};
const compare = (a, b) => {
  const [x, y] = [Number(a.replace("inf", "Infinity")), Number(b.replace("inf", "Infinity"))];
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x === y ? 0 : x - y;
};
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const before = head.getAttribute("aria-sort");
    const descending = before === "none" ? head.classList.contains("number") : before === "ascending";
    for (const other of head.parentElement.cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const sign = descending ? -1 : 1;
    body.append(...[...body.rows].sort((a, b) => sign * compare(value(a, head.cellIndex), value(b, head.cellIndex))));
  });
}
for (const input of document.querySelectorAll("input[data-filters]")) {
  input.addEventListener("input", () => {
    const rows = [...document.getElementById(input.dataset.filters).tBodies[0].rows], words = input.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(words);
    document.getElementById("count-" + input.dataset.filters).textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
  });
}
for (const input of document.querySelectorAll("[data-signal]")) {
  input.addEventListener("input", () => report.signal(input.dataset.signal, input.type === "range" ? Number(input.value) : input.value));
}
const names = [...document.querySelectorAll(".key button")];
for (const button of names) {
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
    const pressed = names.filter((one) => one.getAttribute("aria-pressed") === "true");
    report.signal("highlight", pressed.map((one) => one.dataset.name));
  });
}
report.start();
