// What the charts share: numbers as people read them, SVG elements, scales, the tooltip, the colours of the page.
// Text from the model only ever becomes a text node; nothing is parsed as HTML.

function significant(value, digits = 3) {
  if (value === 0) return "0";
  const rounded = Number(value.toPrecision(digits));
  const places = Math.max(digits - 1 - Math.floor(Math.log10(Math.abs(rounded))), 0);
  return rounded.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
}

function scaled(value, unit) {
  const prefixes = ["", "k", "M", "G", "T", "P", "E"];
  let step = 0;
  while (Math.abs(value) >= 999.5 && step < prefixes.length - 1) {
    value /= 1000;
    step += 1;
  }
  const number = step === 0 && Number.isInteger(value) ? String(value) : significant(value);
  return `${number} ${prefixes[step]}${unit}`.trim();
}

function duration(us) {
  if (us >= 999500) return `${significant(us / 1e6)} s`;
  if (us >= 999.5) return `${significant(us / 1e3)} ms`;
  return `${significant(us)} µs`;
}

function capacity(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let step = 0;
  while (Math.abs(bytes) >= 999.5 && step < units.length - 1) {
    bytes /= 1024;
    step += 1;
  }
  return step === 0 ? `${bytes} B` : `${significant(bytes)} ${units[step]}`;
}

function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.05) return "<0.1 %";
  return value >= 99.95 || value === 0 ? `${value.toFixed(0)} %` : `${value.toFixed(1)} %`;
}

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made && key !== "list") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A scale maps values to pixels; `invert` maps back.
function scale(low, high, from, to, logarithmic = false) {
  const value = logarithmic ? Math.log10 : (x) => x;
  const [first, last] = [value(low), value(high)];
  const perUnit = (to - from) / (last - first || 1);
  const at = (x) => from + (value(x) - first) * perUnit;
  at.invert = (pixel) => {
    const found = first + (pixel - from) / perUnit;
    return logarithmic ? 10 ** found : found;
  };
  return at;
}

function decades(low, high, most = 8) {
  const found = [];
  const first = Math.ceil(Math.log10(low) - 1e-9);
  const last = Math.floor(Math.log10(high) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / most));
  for (let power = first; power <= last; power += step) found.push(10 ** power);
  return found;
}

// Round numbers from 0 to `high`: in steps of 1, 2 or 5 times a power of `base` 1000 or 1024.
function steps(high, base = 1000, most = 5) {
  if (!(high > 0)) return [0];
  const unit = base ** Math.floor(Math.log(high) / Math.log(base));
  const raw = high / unit / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((x) => x * power).find((x) => x >= raw);
  const found = [];
  for (let value = 0; value <= (high / unit) * 1.0001; value += step) found.push(value * unit);
  return found;
}

// Draws now and whenever the place gets another size. `draw` is given the place's width and height.
function drawn(place, draw) {
  const redraw = () => {
    const { width, height } = place.getBoundingClientRect();
    if (width > 0) draw(Math.round(width), Math.round(height));
  };
  new ResizeObserver(redraw).observe(place);
  return redraw;
}

const tip = document.getElementById("tip");

function showTip(x, y, title, rows) {
  tip.replaceChildren(
    element("strong", {}, title),
    ...rows.map(([key, value]) => element("div", {}, element("span", {}, key), element("span", {}, value))),
  );
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 16 + width > innerWidth ? x - width - 16 : x + 16;
  const top = Math.min(Math.max(y - height / 2, 8), innerHeight - height - 8);
  tip.style.transform = `translate(${Math.max(left, 8)}px, ${Math.max(top, 8)}px)`;
}

function hideTip() {
  tip.hidden = true;
}

// The switch of colours: as the system says, light or dark; kept where the browser lets a file keep something.
function startTheme() {
  const group = document.querySelector(".theme");
  const buttons = [...group.querySelectorAll("button")];
  const choose = (choice) => {
    if (choice === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.themeChoice === choice));
  };
  let kept = null;
  try {
    kept = localStorage.getItem("neusight-theme");
  } catch {
    // storage is off
  }
  choose(kept === "light" || kept === "dark" ? kept : "auto");
  for (const button of buttons) {
    button.addEventListener("click", () => {
      choose(button.dataset.themeChoice);
      try {
        localStorage.setItem("neusight-theme", button.dataset.themeChoice);
      } catch {
        // storage is off
      }
    });
  }
  group.hidden = false;
}

function colour(place) {
  return `k${Math.min(place, 8)}`;
}
