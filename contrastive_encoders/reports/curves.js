// Curves of runs: what is shown over what, and how much it is smoothed, is chosen above them.
"use strict";
(() => {
  const { runs, step } = report.data.curves;
  const figure = document.querySelector("[data-signal=metric]").closest("figure");
  const control = (name) => figure.querySelector(`[data-signal=${name}]`);

  const between = ([at, values], x) => {
    const after = at.findIndex((one) => one >= x);
    if (after <= 0) return after === 0 ? values[0] : values[values.length - 1];
    const share = (x - at[after - 1]) / (at[after] - at[after - 1]);
    return values[after - 1] + share * (values[after] - values[after - 1]);
  };
  // An exponential mean without a bias towards 0, as TensorBoard's
  const smoothed = (values, weight) => {
    let mean = 0, known = 0;
    return values.map((value) => {
      mean = weight * mean + (1 - weight) * value;
      known = weight * known + (1 - weight);
      return mean / known;
    });
  };
  const points = () => {
    const metric = control("metric").value, over = control("over").value, weight = Number(control("smoothing").value);
    return runs.filter((run) => metric in run.lines).flatMap((run) => {
      const [place, values] = run.lines[metric], steps = run.steps[place], other = run.others[over];
      const y = smoothed(values, weight);
      return steps.map((at, row) => ({
        arm: run.name, run: run.run, step: at, x: over === step || !other ? at : between(other, at), y: y[row],
      }));
    });
  };
  report.when(figure.querySelector(".plot").dataset.figure, (view) => {
    const draw = () => view.data("points", points()).runAsync();
    for (const name of ["metric", "over", "smoothing"]) control(name).addEventListener("input", draw);
  });
})();
