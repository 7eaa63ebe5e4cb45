// A run while it trains: the page reloads itself until the run is finished, and what was chosen on it stays chosen.
"use strict";
(() => {
  const { written, finished, every, neighbours } = report.data.live;
  const known = history.state ?? {};
  const keep = (more) => history.replaceState(Object.assign(known, more), "");

  // What the sentences lie nearest to, step by step
  const slider = document.getElementById("moment");
  if (slider) {
    const { sentences, steps } = neighbours, body = document.getElementById("nearest").tBodies[0];
    const show = () => {
      const place = Number(slider.value), [step, found] = steps[place];
      const said = step ? `step ${step.toLocaleString("en")}` : "before training";
      document.getElementById("moment-says").textContent = said;
      slider.setAttribute("aria-valuetext", said);
      body.replaceChildren(...sentences.map((sentence, row) => {
        const before = place ? steps[place - 1][1][row].map(([text]) => text) : null;
        return report.element("tr", {}, report.element("th", { scope: "row", dir: "auto" }, sentence), ...found[row].map(
          ([text, cosine]) => report.element("td", { dir: "auto", class: before && !before.includes(text) ? "new" : "" },
            report.element("bdi", {}, text), " ", report.element("span", { class: "cosine" }, cosine.toFixed(2)))));
      }));
    };
    const last = steps.length - 1, at = steps.findIndex(([step]) => step === known.moment);
    slider.max = last;
    slider.value = at < 0 ? last : at;  // the newest, unless an earlier one was chosen
    slider.addEventListener("input", () => {
      const place = Number(slider.value);
      keep({ moment: place === last ? undefined : steps[place][0] });
      show();
    });
    show();
  }

  // One run: its tip needs neither a name nor a band
  report.tips.set("logged", ({ step, y }) => ({ "optimizer step": Math.round(step).toLocaleString("en"), value: Number(y).toPrecision(5) }));
  for (const control of document.querySelectorAll("[data-signal]")) {
    control.addEventListener("input", () => keep({ [control.dataset.signal]: control.value }));
    report.when("logged", () => {
      const value = known[control.dataset.signal];
      if (value === undefined || (control.options && ![...control.options].some((one) => one.value === value))) return;
      control.value = value;
      control.dispatchEvent(new Event("input"));
    });
  }
  if (known.top) {
    history.scrollRestoration = "manual";
    report.drawAll().then(() => scrollTo(0, known.top));
  }
  if (finished) return;

  const age = document.getElementById("age"), reloads = document.getElementById("reloads");
  reloads.checked = known.reloads !== false;
  reloads.addEventListener("change", () => keep({ reloads: reloads.checked }));
  const opened = Date.now();
  let touched = 0;
  for (const kind of ["pointermove", "keydown", "wheel", "touchmove"]) {
    addEventListener(kind, () => { touched = Date.now(); }, { passive: true });
  }
  setInterval(() => {
    const now = Date.now(), minutes = Math.floor((now / 1000 - written) / 60);
    const words = minutes < 10 ? "" : `That was ${minutes} minutes ago: the run may have been ended.`;
    if (age.textContent !== words) age.textContent = words;
    if (reloads.checked && !document.hidden && now - opened >= 1000 * every && now - touched > 3000) {
      keep({ top: scrollY });
      location.reload();
    }
  }, 1000);
})();
