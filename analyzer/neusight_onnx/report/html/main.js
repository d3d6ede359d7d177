// Starts what the page has; what one part chooses, the others show.

startTheme();
const data = JSON.parse(document.getElementById("data").textContent);

if (data.kind === "sweep") startSweep(data);

if (data.kind === "report") {
  let matching = null;
  const parts = { classes: () => {}, roofline: () => {}, kernels: null };
  const state = {
    class: null,
    matching: () => matching,
    setClass(value) {
      state.class = value;
      parts.classes();
      parts.kernels.arrange();
    },
    narrowed(groups) {
      matching = groups;
      parts.roofline();
    },
    search: (words) => parts.kernels.search(words),
    choose: (group) => parts.kernels.chooseGroup(group),
  };
  if (data.rows.length) {
    parts.kernels = startKernels(data, state);
    parts.classes = startClasses(data, state);
    parts.roofline = startRoofline(data, state);
    parts.classes();
    parts.kernels.arrange();
  }
  startMemory(data);
}
document.documentElement.dataset.ready = "yes";
