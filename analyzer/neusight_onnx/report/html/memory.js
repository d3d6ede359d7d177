// Bytes of tensors alive, node after node: what stays alive as an area, the most while a node runs as a line.

function startMemory(data) {
  const place = document.getElementById("memory-chart");
  if (!place || !data.memory) return;
  const { steps: points, node_count: count } = data.memory;
  const most = Math.max(...points.map((point) => point[3]), 1);
  const highest = points.reduce((best, point) => (point[3] > best[3] ? point : best));
  let cursor = null;
  let x = null;
  drawn(place, (width, height) => {
    const edge = { left: 74, right: 12, top: 16, bottom: 36 };
    x = scale(0, Math.max(count - 1, 1), edge.left, width - edge.right);
    const y = scale(0, most * 1.12, height - edge.bottom, edge.top);
    const picture = svg("svg", { role: "img", "aria-label": "Bytes of tensors alive after each node" });
    for (const value of steps(most, 1024)) {
      picture.append(
        svg("line", { class: "gridline", x1: edge.left, x2: width - edge.right, y1: y(value), y2: y(value) }),
        svg("text", { x: edge.left - 8, y: y(value) + 4, "text-anchor": "end" }, capacity(value)),
      );
    }
    for (const value of steps(count - 1, 1000, 6)) {
      picture.append(
        svg("text", { x: x(value), y: height - edge.bottom + 16, "text-anchor": "middle" }, Math.round(value).toLocaleString("en-US")),
      );
    }
    const base = y(0);
    const next = (index) => (index + 1 < points.length ? x(points[index + 1][0]) : width - edge.right);
    const outline = (value) => points.map((point, index) => `${x(point[0])},${y(value(point))}H${next(index)}`).join("L");
    picture.append(
      svg("path", { class: "area", d: `M${x(points[0][0])},${base}L${outline((point) => point[2])}V${base}Z` }),
      svg("path", { class: "thin", d: `M${outline((point) => point[3])}` }),
      svg("line", { class: "axis", x1: edge.left, x2: width - edge.right, y1: base, y2: base }),
      svg("text", { x: (edge.left + width - edge.right) / 2, y: height - 4, "text-anchor": "middle" }, "node, in the order of execution"),
    );
    const right = x(highest[0]) > width / 2;
    picture.append(
      svg("circle", { class: "open k1", cx: x(highest[0]), cy: y(highest[3]), r: 4 }),
      svg(
        "text",
        { class: "strong", x: x(highest[0]) + (right ? -9 : 9), y: y(highest[3]) - 6, "text-anchor": right ? "end" : "start" },
        `peak ${capacity(highest[3])}`,
      ),
    );
    cursor = svg("line", { class: "cursor off", y1: edge.top, y2: base });
    picture.append(cursor);
    place.replaceChildren(picture);
  });
  place.addEventListener("mousemove", (event) => {
    const box = place.getBoundingClientRect();
    const at = x.invert(event.clientX - box.left);
    let found = points[0];
    for (const point of points) if (point[0] <= at + 0.5) found = point;
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, x(found[0]));
    cursor.classList.remove("off");
    showTip(box.left + x(found[0]), event.clientY, data.names[found[1]], [
      ["node", `${(found[0] + 1).toLocaleString("en-US")} of ${count.toLocaleString("en-US")}`],
      ["alive after it", capacity(found[2])],
      ["most while it runs", capacity(found[3])],
    ]);
  });
  place.addEventListener("mouseleave", () => {
    cursor?.classList.add("off");
    hideTip();
  });
}
