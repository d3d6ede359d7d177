// Time by kernel class, as bars that filter the table.

function startClasses(data, state) {
  const place = document.querySelector("#classes .bars.classes");
  const longest = Math.max(...data.classes.map((part) => part.us), data.host_us, 1e-9);
  const bar = (us, kind, most = longest) =>
    svg(
      "svg",
      { "aria-hidden": "true" },
      svg("rect", { class: "track", width: "100%", height: 14, rx: 3 }),
      svg("rect", { class: kind, width: `${(100 * us) / most}%`, height: 14, rx: 3 }),
    );
  const buttons = data.classes.map((part, index) => {
    const button = element(
      "button",
      { type: "button", title: `${part.count.toLocaleString("en-US")} kernels; show only these` },
      element("span", {}, part.name),
      bar(part.us, colour(index)),
      element("span", {}, duration(part.us)),
      element("span", {}, percent(part.share)),
    );
    button.addEventListener("click", () => state.setClass(state.class === index ? null : index));
    return button;
  });
  const rest = element(
    "button",
    { type: "button", disabled: true, title: "the time in which the GPU waits for the host" },
    element("span", {}, "waiting for host"),
    bar(data.host_us, "k8"),
    element("span", {}, duration(data.host_us)),
    element("span", {}, percent(data.total_us ? data.host_us / data.total_us : 0)),
  );
  place.replaceChildren(...buttons, rest);

  // by operator: a kernel of several counts for all of them together
  const operators = new Map();
  for (const group of data.groups) {
    const name = data.names[group.ops];
    operators.set(name, (operators.get(name) ?? 0) + group.us * group.runs);
  }
  const slowest = [...operators].sort((a, b) => b[1] - a[1]).slice(0, 6);
  document.querySelector("#operators").replaceChildren(
    ...slowest.map(([name, us]) => {
      const button = element(
        "button",
        { type: "button", title: `${name}; show only these` },
        element("span", {}, name),
        bar(us, "k8", slowest[0][1] || 1),
        element("span", {}, duration(us)),
        element("span", {}, percent(data.total_us ? us / data.total_us : 0)),
      );
      button.addEventListener("click", () => state.search(name));
      return button;
    }),
  );
  return () => {
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(state.class === index)));
  };
}
