// Kernels under the GPU's roofs: work per byte across, work per second upwards, both logarithmic.

function startRoofline(data, state) {
  const section = document.getElementById("roofline");
  const place = section.querySelector(".chart");
  const foot = section.querySelector(".foot");
  const all = data.groups
    .map((group, index) => ({
      group,
      index,
      x: group.flops / (group.read + group.write || 1),
      y: (group.flops / group.us) * 1e6,
      us: group.us * group.runs,
    }))
    .sort((a, b) => b.us - a.us);
  const working = all.filter((point) => point.group.flops > 0 && point.group.us > 0);
  const points = working.slice(0, data.most_points);
  const moving = all.filter((point) => point.group.flops === 0);
  const sum = (list) => list.reduce((total, point) => total + point.us, 0);
  const said = [];
  if (moving.length) {
    said.push(`Not drawn: kernels that only move data, ${percent(sum(moving) / data.total_us)} of the time.`);
  }
  if (working.length > points.length) {
    const rest = working.slice(points.length);
    said.push(`Not drawn: the ${rest.length} shortest kernels, ${percent(sum(rest) / data.total_us)} of the time.`);
  }
  said.push("Bytes are those of the operands: what stays in the L2 cache can lie above the roof of the memory.");
  foot.textContent = said.join(" ");
  if (!points.length) {
    place.hidden = true;
    return () => {};
  }

  const topRoof = Math.max(...data.roofs.map((roof) => roof.flops));
  const ridge = topRoof / data.bandwidth;
  const xs = [...points.map((point) => point.x), ridge];
  const ys = points.map((point) => point.y);
  const [xLow, xHigh] = [Math.min(...xs) / 2, Math.max(...xs) * 2.5];
  const [yLow, yHigh] = [Math.min(...ys, topRoof / 100) / 2.2, topRoof * 2.4];
  const longest = Math.max(...points.map((point) => point.us));
  let near = null;
  let placed = [];

  // what the table leaves out fades
  const mark = () => {
    const wanted = state.matching();
    for (const { point, circle } of placed) circle.classList.toggle("dim", Boolean(wanted) && !wanted.has(point.index));
  };

  drawn(place, (width, height) => {
    const edge = { left: 74, right: 12, top: 8, bottom: 40 };
    const x = scale(xLow, xHigh, edge.left, width - edge.right, true);
    const y = scale(yLow, yHigh, height - edge.bottom, edge.top, true);
    const picture = svg("svg", { role: "img", "aria-label": "Roofline plot; the table below holds the same kernels" });
    for (const value of decades(xLow, xHigh, width < 500 ? 4 : 8)) {
      picture.append(
        svg("line", { class: "gridline", x1: x(value), x2: x(value), y1: edge.top, y2: height - edge.bottom }),
        svg("text", { x: x(value), y: height - edge.bottom + 16, "text-anchor": "middle" }, significant(value, 1)),
      );
    }
    for (const value of decades(yLow, yHigh)) {
      picture.append(
        svg("line", { class: "gridline", x1: edge.left, x2: width - edge.right, y1: y(value), y2: y(value) }),
        svg("text", { x: edge.left - 8, y: y(value) + 4, "text-anchor": "end" }, scaled(value, "FLOP/s")),
      );
    }
    picture.append(
      svg("line", { class: "axis", x1: edge.left, x2: width - edge.right, y1: height - edge.bottom, y2: height - edge.bottom }),
      svg("text", { x: (edge.left + width - edge.right) / 2, y: height - 6, "text-anchor": "middle" }, "FLOP per byte"),
    );

    // large points first, so that small ones lie on top
    placed = points.map((point) => ({
      point,
      px: x(point.x),
      py: y(point.y),
      radius: 3 + 14 * Math.sqrt(point.us / longest),
    }));
    for (const each of placed) {
      const { point, px, py, radius } = each;
      each.circle = svg("circle", { class: `point ${colour(point.group.class)}`, cx: px, cy: py, r: radius });
      picture.append(each.circle);
    }
    mark();
    // the slope of the memory up to the highest roof, and a flat roof for each pipe from where it leaves the slope
    const start = Math.max(xLow, yLow / data.bandwidth);
    picture.append(
      svg("path", { class: "roof", d: `M${x(start)},${y(start * data.bandwidth)}L${x(ridge)},${y(topRoof)}` }),
    );
    for (const roof of data.roofs) {
      const from = Math.max(roof.flops / data.bandwidth, xLow);
      const kind = roof.flops === topRoof ? "roof" : "roof second";
      picture.append(
        svg("path", { class: kind, d: `M${x(from)},${y(roof.flops)}L${width - edge.right},${y(roof.flops)}` }),
        svg(
          "text",
          { class: "strong", x: width - edge.right, y: y(roof.flops) - 6, "text-anchor": "end" },
          `${roof.name} ${scaled(roof.flops, "FLOP/s")}`,
        ),
      );
    }
    const slope = (Math.atan2(y(xLow * 10) - y(xLow), x(xLow * 10) - x(xLow)) * 180) / Math.PI;
    const incline = (Math.atan2(y(yLow * 10) - y(yLow), x(xLow * 10) - x(xLow)) * 180) / Math.PI;
    const middle = Math.sqrt(start * ridge);
    picture.append(
      svg(
        "text",
        {
          class: "strong",
          "text-anchor": "middle",
          transform: `translate(${x(middle)},${y(middle * data.bandwidth) - 7}) rotate(${Number.isFinite(incline) ? incline : slope})`,
        },
        `memory ${scaled(data.bandwidth, "B/s")}`,
      ),
    );

    near = svg("circle", { class: "near", r: 0 });
    picture.append(near);
    place.replaceChildren(picture);
  });

  const nearest = (event) => {
    const box = place.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    let best = null;
    let least = 24;
    for (const each of placed) {
      const distance = Math.max(Math.hypot(each.px - px, each.py - py) - each.radius / 2, 0);
      if (distance < least || (best && distance === least && each.radius < best.radius)) [best, least] = [each, distance];
    }
    return best;
  };
  const show = (found, box) => {
    near.setAttribute("r", found.radius + 2);
    near.setAttribute("cx", found.px);
    near.setAttribute("cy", found.py);
    const { group } = found.point;
    showTip(box.left + found.px, box.top + found.py, data.names[group.place], [
      ["class", data.classes[group.class].name],
      ["dims", data.names[group.dims]],
      ["time", `${duration(found.point.us)} (${percent(found.point.us / data.total_us)})`],
      ["runs", `${group.runs.toLocaleString("en-US")} of ${duration(group.us)}`],
      ["rate", scaled(found.point.y, "FLOP/s")],
      ["work per byte", `${significant(found.point.x)} FLOP/B`],
      ["bound", group.bound],
      ["utilization", percent(group.util)],
    ]);
  };
  place.addEventListener("mousemove", (event) => {
    const found = nearest(event);
    place.style.cursor = found ? "pointer" : "";
    if (found) show(found, place.getBoundingClientRect());
    else {
      near?.setAttribute("r", 0);
      hideTip();
    }
  });
  place.addEventListener("mouseleave", () => {
    near?.setAttribute("r", 0);
    hideTip();
  });
  place.addEventListener("click", (event) => {
    const found = nearest(event);
    if (found) state.choose(found.point.index);
  });
  return mark;
}
