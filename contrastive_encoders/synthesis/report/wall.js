// The wall of examples: filtered by words, label, fate, length, overlap, similarity and the discriminator's answer.
"use strict";
(() => {
  const place = document.getElementById("wall"), { labels, fates, items } = report.data.wall, { element } = report;
  if (!place || !items.length) return;
  const [X1, TEXT, LABEL, FATE, WORDS, OVERLAP, COSINE, P] = [0, 1, 2, 3, 4, 5, 6, 7], AT_ONCE = 24;
  const measures = [["words", WORDS, 1], ["overlap", OVERLAP, 0.05], ["similarity", COSINE, 0.05], ["probability", P, 0.05]]
    .filter(([, column]) => items.some((one) => one[column] !== null));
  const controls = place.appendChild(element("div", { class: "controls", role: "group", "aria-label": "Which examples" }));
  const control = (name, made) => {
    controls.append(element("label", {}, `${name} `, made));
    made.addEventListener("input", () => { shown = AT_ONCE; list(); });
    return made;
  };
  const choice = (name, options) => control(name, element("select", {},
    ...options.map((text, number) => element("option", { value: number }, text))));

  const search = control("with the words", element("input", { type: "search" }));
  const counts = (column, names) => names.map((name, number) => `${name} (${items.filter((one) => one[column] === number).length})`);
  const label = choice("label", ["all", ...counts(LABEL, labels)]);
  const fate = choice("fate", ["all", ...counts(FATE, fates)]);
  if (items.some((one) => one[FATE] === 0)) fate.value = "1";
  const ranges = measures.map(([name, column, step]) => {
    const found = items.map((one) => one[column]).filter((value) => value !== null);
    const bound = (word, text, of) => control(word, element("input",
      { type: "number", step, placeholder: text(step === 1 ? of : of.toFixed(2)), "aria-label": `${name} ${word === "to" ? "at most" : "at least"}` }));
    const low = bound(`${name} from`, String, Math.min(...found)), high = bound("to", String, Math.max(...found));
    const both = element("span", { class: "range" });
    low.parentElement.before(both);
    both.append(low.parentElement, high.parentElement);
    return { column, low, high };
  });
  const orders = measures.flatMap(([name, column]) => [[`${name}, lowest first`, column, 1], [`${name}, highest first`, column, -1]]);
  const order = choice("order", ["as drawn", ...orders.map(([name]) => name)]);
  const reset = element("button", { type: "button", class: "clear" }, "Show all");
  controls.append(reset);
  const status = place.appendChild(element("p", { role: "status" }));
  const wall = place.appendChild(element("ol", { class: "wall" }));
  const more = place.appendChild(element("button", { type: "button", class: "clear" }, "Show more"));
  let shown = AT_ONCE;

  const card = (one) => {
    const facts = element("p", { class: "facts" });
    const chip = element("span", { class: "chip", dir: "auto" }, labels[one[LABEL]]);
    chip.style.borderColor = `var(--c${one[LABEL] % 8 + 1})`;
    facts.append(chip);
    if (one[FATE] > 0) facts.append(element("span", { class: "warn" }, fates[one[FATE]]));
    for (const [name, column, step] of measures) {
      if (one[column] !== null) facts.append(element("span", {}, step === 1 ? `${one[column]} ${name}` : `${name} ${one[column].toFixed(2)}`));
    }
    const given = one[X1] === null ? [] : [element("p", { class: "given", dir: "auto" }, one[X1])];
    return element("li", {}, ...given, element("p", { class: "written", dir: "auto" }, one[TEXT]), facts);
  };
  const within = (value, { low, high }) => (low.value === "" && high.value === "") ||
    (value !== null && (low.value === "" || value >= Number(low.value)) && (high.value === "" || value <= Number(high.value)));
  const list = () => {
    const words = search.value.toLowerCase().split(/\s+/u).filter(Boolean);
    const found = items.filter((one) => (label.value === "0" || one[LABEL] === label.value - 1) &&
      (fate.value === "0" || one[FATE] === fate.value - 1) &&
      ranges.every((range) => within(one[range.column], range)) &&
      words.every((word) => `${one[X1] ?? ""} ${one[TEXT]}`.toLowerCase().includes(word)));
    if (order.value > 0) {
      const [, column, sign] = orders[order.value - 1];
      found.sort((a, b) => (a[column] === null) - (b[column] === null) || sign * (a[column] - b[column]));
    }
    wall.replaceChildren(...found.slice(0, shown).map(card));
    more.hidden = found.length <= shown;
    status.textContent = `${found.length.toLocaleString("en")} of ${items.length.toLocaleString("en")} examples` +
      (more.hidden ? "" : `, the first ${shown}`);
  };
  more.addEventListener("click", () => { shown += AT_ONCE; list(); });
  reset.addEventListener("click", () => {
    for (const input of controls.querySelectorAll("input")) input.value = "";
    for (const select of controls.querySelectorAll("select")) select.value = "0";
    shown = AT_ONCE;
    list();
  });
  list();
})();
