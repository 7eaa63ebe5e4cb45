// A sentence is chosen, by its words or in a map: it lights up in all maps, and its neighbors under each arm are listed.
"use strict";
(() => {
  const { sentences, arms } = report.data.explorer, place = document.getElementById("explorer");
  if (!place || !sentences.length) return;
  const { element } = report, SHOWN = 8;
  const input = element("input", { type: "search", "aria-controls": "found", placeholder: "words of it" });
  const found = element("ul", { id: "found", class: "found" }), status = element("span", { role: "status" });
  const lists = element("div", { class: "lists", "aria-live": "polite" });
  place.append(element("label", { class: "filter" }, "Find a sentence ", input), " ", status, found, lists);

  const button = (row) => {
    const made = element("button", { type: "button", dir: "auto", "data-sentence": row }, sentences[row]);
    made.addEventListener("click", () => choose(row));
    return made;
  };
  const choose = (row) => {
    report.signal("chosen", row);
    report.signal("near", row < 0 ? [] : arms.map((one) => one.near[row]));
    const columns = row < 0 ? [] : arms.map((one) => element("section", { class: "near" },
      element("h4", { dir: "auto" }, one.arm),
      element("ol", {}, ...one.near[row].map((other, rank) => element("li", {}, button(other),
        element("small", {}, ` ${(one.cosines[row][rank] / 100).toFixed(2)}`))))));
    const clear = element("button", { type: "button", class: "clear" }, "Clear");
    clear.addEventListener("click", () => choose(-1));
    const head = row < 0 ? [] : [element("p", { class: "asked", dir: "auto" }, sentences[row]), clear];
    lists.replaceChildren(...head, element("div", { class: "columns" }, ...columns));
  };
  const search = () => {
    const words = input.value.toLowerCase().split(/\s+/u).filter(Boolean);
    const rows = words.length ? [...sentences.keys()].filter((row) => words.every((word) => sentences[row].toLowerCase().includes(word))) : [];
    found.replaceChildren(...rows.slice(0, SHOWN).map((row) => element("li", {}, button(row))));
    status.textContent = words.length ? `${rows.length} of ${sentences.length} sentences` : "";
  };
  input.addEventListener("input", search);
  report.tips.set("map", (point) => ({ "": sentences[point.sentence] }));
  report.when("map", (view) => {
    view.addEventListener("click", (_, item) => choose(item?.datum?.sentence ?? -1));
  });
})();
