// One quantity over the sizes: a line for each series with its interval, limits, and what does not fit.

const SWEEP_METRICS = [
  { name: "Latency", value: (point) => point.ms, low: (point) => point.low, high: (point) => point.high, text: (value) => duration(value * 1e3) },
  { name: "Throughput", value: (point) => point.rate, text: (value) => `${significant(value)} /s` },
  { name: "Memory", value: (point) => point.bytes, text: capacity },
];

function startSweep(data) {
  const place = document.getElementById("sweep-chart");
  const tools = document.querySelector("#sweep .tools");
  const series = new Map();
  for (const point of data.points) {
    if (!series.has(point.series)) series.set(point.series, []);
    series.get(point.series).push(point);
  }
  for (const points of series.values()) points.sort((a, b) => a.x - b.x);
  let metric = SWEEP_METRICS[0];
  if (!data.points.length) {
    place.textContent = "No point could be costed.";
    return;
  }
  let placed = [];
  const sizes = [...new Set(data.points.map((point) => point.x))].sort((a, b) => a - b);
  const logarithmic = sizes.length > 2 && sizes[0] > 0 && sizes[sizes.length - 1] / sizes[0] >= 8;

  const redraw = drawn(place, (width, height) => {
    const edge = { left: 84, right: 18, top: 18, bottom: 40 };
    const limit = metric.name === "Latency" ? data.limit_ms : metric.name === "Memory" ? data.available : null;
    const values = data.points.flatMap((point) => [metric.value(point), metric.low ? metric.low(point) : metric.value(point), metric.high ? metric.high(point) : metric.value(point)]);
    if (limit && limit < 3 * Math.max(...values)) values.push(limit);
    const most = Math.max(...values) || 1;
    const least = Math.min(...values.filter((value) => value > 0), most);
    const steep = most / least > 50;
    const x = scale(sizes[0], sizes[sizes.length - 1], edge.left + 8, width - edge.right - 8, logarithmic);
    const y = steep ? scale(least / 1.5, most * 1.4, height - edge.bottom, edge.top, true) : scale(0, most * 1.08, height - edge.bottom, edge.top);
    const picture = svg("svg", { role: "img", "aria-label": `${metric.name} over ${data.axis}; the table below holds the same points` });
    for (const value of steep ? decades(least / 1.5, most * 1.4, 6) : steps(most, metric.name === "Memory" ? 1024 : 1000)) {
      picture.append(
        svg("line", { class: "gridline", x1: edge.left, x2: width - edge.right, y1: y(value), y2: y(value) }),
        svg("text", { x: edge.left - 8, y: y(value) + 4, "text-anchor": "end" }, metric.text(value)),
      );
    }
    let before = -Infinity;
    for (const size of sizes) {
      if (x(size) - before < 42) continue;
      before = x(size);
      picture.append(svg("text", { x: before, y: height - edge.bottom + 16, "text-anchor": "middle" }, size.toLocaleString("en-US")));
    }
    picture.append(
      svg("line", { class: "axis", x1: edge.left, x2: width - edge.right, y1: height - edge.bottom, y2: height - edge.bottom }),
      svg("text", { x: (edge.left + width - edge.right) / 2, y: height - 6, "text-anchor": "middle" }, data.axis),
    );
    if (limit && limit <= most * 1.08) {
      picture.append(
        svg("line", { class: "limit", x1: edge.left, x2: width - edge.right, y1: y(limit), y2: y(limit) }),
        svg("text", { class: "limit-text", x: edge.left + 6, y: y(limit) - 5 }, `limit ${metric.text(limit)}`),
      );
    }
    placed = [];
    [...series.entries()].forEach(([name, points], index) => {
      const path = (value) => points.map((point) => `${x(point.x)},${y(value(point))}`).join("L");
      if (metric.low && points.length > 1) {
        const back = [...points].reverse().map((point) => `${x(point.x)},${y(metric.low(point))}`).join("L");
        picture.append(svg("path", { class: `band ${colour(index)}`, d: `M${path(metric.high)}L${back}Z` }));
      }
      // the path goes through its points: fill is none by its class
      const stroke = svg("path", { class: `line ${colour(index)}`, d: `M${path(metric.value)}` });
      picture.append(stroke);
      for (const point of points) {
        const kind = point.fits === "does not fit" ? "open" : "";
        const at = { name, point, px: x(point.x), py: y(metric.value(point)) };
        placed.push(at);
        picture.append(svg("circle", { class: `${colour(index)} ${kind}`, cx: at.px, cy: at.py, r: 4 }));
      }
      if (name && points.length) {
        const last = points[points.length - 1];
        picture.append(svg("text", { class: "strong", x: x(last.x) - 6, y: y(metric.value(last)) - 9, "text-anchor": "end" }, name));
      }
    });
    place.replaceChildren(picture);
  });

  place.addEventListener("mousemove", (event) => {
    const box = place.getBoundingClientRect();
    let best = null;
    let least = 60;
    for (const each of placed) {
      const distance = Math.hypot(each.px - event.clientX + box.left, each.py - event.clientY + box.top);
      if (distance < least) [best, least] = [each, distance];
    }
    if (!best) {
      hideTip();
      return;
    }
    const { point } = best;
    showTip(box.left + best.px, box.top + best.py, `${data.axis}=${point.x}${best.name ? `, ${best.name}` : ""}`, [
      ["latency", `${duration(point.ms * 1e3)} (${duration(point.low * 1e3)} to ${duration(point.high * 1e3)})`],
      ["throughput", `${significant(point.rate)} samples/s`],
      ["memory", `${capacity(point.bytes)}, ${point.fits}`],
    ]);
  });
  place.addEventListener("mouseleave", hideTip);

  const tabs = element("div", { className: "tabs" });
  for (const each of SWEEP_METRICS) {
    const button = element("button", { type: "button" }, each.name);
    button.setAttribute("aria-pressed", String(each === metric));
    button.addEventListener("click", () => {
      metric = each;
      for (const other of tabs.children) other.setAttribute("aria-pressed", String(other === button));
      redraw();
    });
    tabs.append(button);
  }
  tools.append(tabs);
}
