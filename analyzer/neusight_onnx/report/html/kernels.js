// The table of kernels: only the rows in view are in the page, so that ten thousand cost no more than thirty.

const ROW_HEIGHT = 28;

// The end of a path names the operator: of a long one the middle goes.
function shortened(text, width) {
  if (text.length <= width) return text;
  const tail = Math.ceil(((width - 1) * 2) / 3);
  return `${text.slice(0, width - 1 - tail)}…${text.slice(text.length - tail)}`;
}

function startKernels(data, state) {
  const grid = document.getElementById("grid");
  const head = grid.querySelector("thead");
  const body = grid.querySelector("tbody");
  const filter = document.getElementById("filter");
  const classes = document.getElementById("class");
  const bounds = document.getElementById("bound");
  const grouped = document.getElementById("grouped");
  const fused = document.getElementById("fused");
  const count = document.getElementById("count");
  const detail = document.getElementById("detail");
  const whole = (value) => value.toLocaleString("en-US");

  // Both views are lists of { group, place, runs, nodes, nodeCount, us }, in the order of execution.
  const line = (group, place, runs, nodes, nodeCount) => {
    const of = data.groups[group];
    return { group, of, place: data.names[place], runs, nodes, nodeCount, us: of.us * runs };
  };
  const single = data.rows.map(([group, place, runs, nodes, nodeCount]) => line(group, place, runs, nodes || [place], nodeCount));
  const members = data.groups.map(() => []);
  for (const each of single) members[each.group].push(each);
  const together = data.groups.map((group, index) => line(index, group.place, group.runs, null, Math.max(...members[index].map((each) => each.nodeCount))));

  const columns = [
    { name: "Node", text: (row) => shortened(row.place, 42), full: (row) => row.place, sort: (row) => row.place },
    { name: "Nodes", text: (row) => (row.nodeCount > 1 ? whole(row.nodeCount) : ""), sort: (row) => row.nodeCount, number: true },
    { name: "Class", text: (row) => data.classes[row.of.class].name, sort: (row) => data.classes[row.of.class].name },
    { name: "Dims", text: (row) => data.names[row.of.dims], sort: (row) => data.names[row.of.dims] },
    { name: "Type", text: (row) => row.of.dtype, sort: (row) => row.of.dtype },
    { name: "Runs", text: (row) => whole(row.runs), sort: (row) => row.runs, number: true },
    { name: "Time", text: (row) => duration(row.us), sort: (row) => row.us, number: true },
    { name: "Share", text: (row) => percent(row.us / data.total_us), sort: (row) => row.us, number: true, bar: true },
    { name: "FLOP/s", text: (row) => (row.of.flops ? scaled((row.of.flops / row.of.us) * 1e6, "") : "–"), sort: (row) => row.of.flops / row.of.us, number: true },
    { name: "Moved", text: (row) => scaled((row.of.read + row.of.write) * row.runs, "B"), sort: (row) => (row.of.read + row.of.write) * row.runs, number: true },
    { name: "Util", text: (row) => percent(row.of.util), sort: (row) => row.of.util, number: true },
    { name: "Bound", text: (row) => row.of.bound, sort: (row) => row.of.bound },
  ];
  let sorted = { column: columns.findIndex((column) => column.name === "Time"), down: true };
  const classColumn = columns.findIndex((column) => column.name === "Class");
  let rows = [];
  let chosen = null;

  data.classes.forEach((part, index) => classes.append(element("option", { value: String(index) }, part.name)));
  for (const bound of [...new Set(data.groups.map((group) => group.bound))].sort()) {
    bounds.append(element("option", { value: bound }, bound));
  }
  head.append(
    element(
      "tr",
      {},
      ...columns.map((column, index) => {
        const button = element("button", { type: "button" }, column.name);
        button.addEventListener("click", () => {
          sorted = { column: index, down: sorted.column === index ? !sorted.down : Boolean(column.number) };
          arrange();
        });
        return element("th", { scope: "col", className: column.number ? "number" : "" }, button);
      }),
    ),
  );

  // Every word of the filter must stand in the row, in any case.
  const searched = new Map();
  const text = (row) => {
    let found = searched.get(row);
    if (found === undefined) {
      const parts = [row.place, data.names[row.of.ops], data.names[row.of.dims], row.of.dtype, data.classes[row.of.class].name];
      for (const each of row.nodes ? [row] : members[row.group]) {
        for (const node of each.nodes) parts.push(data.names[node]);
      }
      found = parts.join("\n").toLowerCase();
      searched.set(row, found);
    }
    return found;
  };

  function arrange() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows = (grouped.checked ? together : single).filter(
      (row) =>
        (state.class === null || row.of.class === state.class) &&
        (!bounds.value || row.of.bound === bounds.value) &&
        (!fused.checked || row.nodeCount > 1) &&
        words.every((word) => text(row).includes(word)),
    );
    const { sort, number } = columns[sorted.column];
    const sign = sorted.down ? -1 : 1;
    rows.sort((a, b) => {
      const [left, right] = [sort(a), sort(b)];
      return sign * (number ? left - right : left < right ? -1 : left > right ? 1 : 0);
    });
    head.querySelectorAll("th").forEach((cell, index) => {
      if (index === sorted.column) cell.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    const us = rows.reduce((total, row) => total + row.us, 0);
    const runs = rows.reduce((total, row) => total + row.runs, 0);
    const said = [
      grouped.checked
        ? `${whole(rows.length)} different kernels, ${whole(runs)} runs`
        : `${whole(rows.length)} of ${whole(data.rows.length + data.left_out)} kernels`,
      `${duration(us)}, ${percent(data.total_us ? us / data.total_us : 0)} of the latency`,
    ];
    if (data.left_out) said.push(`the ${whole(data.left_out)} shortest kernels (${duration(data.left_out_us)}) are not in the table`);
    count.textContent = said.join(" · ");
    grid.style.height = `${Math.min(520, Math.max(rows.length, 2) * ROW_HEIGHT + 36)}px`;
    grid.scrollTop = 0;
    show();
    state.narrowed(words.length || state.class !== null || bounds.value || fused.checked ? new Set(rows.map((row) => row.group)) : null);
  }

  function show() {
    const height = grid.clientHeight || 520;
    const first = Math.max(0, Math.floor(grid.scrollTop / ROW_HEIGHT) - 10);
    const last = Math.min(rows.length, first + Math.ceil(height / ROW_HEIGHT) + 20);
    const longest = rows.reduce((most, row) => Math.max(most, row.us), 0) || 1;
    const space = (size) => {
      const cell = element("td", { colSpan: columns.length });
      cell.style.height = `${size}px`;
      return element("tr", { className: "space", "aria-hidden": "true" }, cell);
    };
    const shown = rows.slice(first, last).map((row) => {
      const cells = columns.map((column) => {
        const value = column.text(row);
        return element("td", { className: column.number ? "number" : "", title: value.length > 14 ? (column.full ?? column.text)(row) : "" }, value);
      });
      const share = columns.findIndex((column) => column.bar);
      cells[share].classList.add("share");
      const width = `${(100 * row.us) / longest}%`;
      cells[share].append(svg("svg", { "aria-hidden": "true" }, svg("rect", { class: colour(row.of.class), width, height: 3, rx: 1 })));
      const dot = element("i", { className: `dot ${colour(row.of.class)}` });
      cells[classColumn].prepend(dot);
      const made = element("tr", { className: row === chosen ? "chosen" : "" }, ...cells);
      made.addEventListener("click", () => choose(row));
      return made;
    });
    if (!rows.length) shown.push(element("tr", {}, element("td", { colSpan: columns.length }, "No kernel matches.")));
    body.replaceChildren(space(first * ROW_HEIGHT), ...shown, space((rows.length - last) * ROW_HEIGHT));
  }

  function choose(row) {
    chosen = row;
    show();
    const of = row.of;
    const facts = [
      ["Operators", data.names[of.ops]],
      ["Time of one run", `${duration(of.us)}, interval ${duration(of.low)} to ${duration(of.high)}`],
      ["Runs", whole(row.runs)],
      ["Work of one run", of.flops ? scaled(of.flops, "FLOP") : "none"],
      ["Read, written", `${scaled(of.read, "B")}, ${scaled(of.write, "B")}`],
      ["Work per byte", of.flops ? `${significant(of.flops / (of.read + of.write || 1))} FLOP/B` : "–"],
      ["Tile", of.tile ? `${of.tile}, ${whole(of.tiles)} tiles in ${whole(of.waves)} waves` : "–"],
      ["Bound", of.bound],
      ["Utilization", percent(of.util)],
      ["Predicted by", of.by],
      ["Dims", data.names[of.dims]],
    ];
    const list = element("dl", {});
    for (const [key, value] of facts) list.append(element("div", {}, element("dt", {}, key), element("dd", {}, value)));
    const names = [];
    for (const each of row.nodes ? [row] : members[row.group]) {
      names.push(each.nodes.map((node) => data.names[node]).join(" + ") + (each.nodeCount > each.nodes.length ? ` and ${each.nodeCount - each.nodes.length} more` : ""));
      if (names.length === 200) {
        names.push("…");
        break;
      }
    }
    detail.replaceChildren(
      element("h2", {}, row.place),
      list,
      element("p", { className: "hint" }, [row.nodes ? [] : [`At ${whole(members[row.group].length)} places`], row.nodeCount > 1 ? [`${whole(row.nodeCount)} nodes in one kernel`] : []].flat().join(", ") || "Node"),
      element("ul", { className: "names" }, ...names.map((name) => element("li", {}, element("code", {}, name)))),
    );
    detail.hidden = false;
  }

  let pending = false;
  grid.addEventListener("scroll", () => {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      show();
    });
  });
  grid.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const at = rows.indexOf(chosen) + (event.key === "ArrowDown" ? 1 : -1);
    if (at < 0 || at >= rows.length) return;
    event.preventDefault();
    const top = at * ROW_HEIGHT;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top + 2 * ROW_HEIGHT + 8 > grid.scrollTop + grid.clientHeight) grid.scrollTop = top + 2 * ROW_HEIGHT + 8 - grid.clientHeight;
    choose(rows[at]);
  });
  filter.addEventListener("input", arrange);
  bounds.addEventListener("change", arrange);
  grouped.addEventListener("change", arrange);
  fused.addEventListener("change", arrange);
  classes.addEventListener("change", () => state.setClass(classes.value === "" ? null : Number(classes.value)));

  return {
    arrange() {
      classes.value = state.class === null ? "" : String(state.class);
      arrange();
    },
    search(words) {
      filter.value = filter.value === words ? "" : words;
      arrange();
    },
    chooseGroup(group) {
      grouped.checked = true;
      filter.value = "";
      bounds.value = "";
      fused.checked = false;
      state.setClass(null);
      const at = rows.findIndex((row) => row.group === group);
      grid.scrollTop = Math.max(0, (at - 3) * ROW_HEIGHT);
      choose(rows[at]);
      detail.scrollIntoView({ block: "nearest" });
    },
  };
}
