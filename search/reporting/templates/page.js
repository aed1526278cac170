// Shows trials where they are pointed at, and their cards. Without this script the page can be read all the same.
"use strict";
const SIDE = 2000, SVG = "http://www.w3.org/2000/svg", REACH = 40;  // units across a plot; pixels from a mark
const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
let data, ids, marks, chosen = null, bands = new Map(), hidden = new Set(), asked = "";

function start() {
  data = JSON.parse(one("#data").textContent);
  ids = Object.keys(data.trials).map(Number);  // rising, with gaps where a search was extended after its final
  marks = new WeakMap();
}

// --- the marks of a plot, read from its paths when it is first pointed at

function marksOf(plot) {
  if (!marks.has(plot)) marks.set(plot, all("path[data-t], path[data-ts]", plot).flatMap(marksIn));
  return marks.get(plot).filter(mark => !mark.path.classList.contains("out"));
}

function marksIn(path) {
  const numbers = path.getAttribute("d").match(/-?\d+/g).map(Number);
  if (path.dataset.ts !== undefined) {  // points: M x y h0, for each trial
    return path.dataset.ts.split(" ").map((t, at) => ({path, t: +t, x: numbers[3 * at], y: numbers[3 * at + 1]}));
  }
  let [x, y] = numbers;
  const found = [{path, t: +path.dataset.t, x, y}];
  for (let at = 2; at + 1 < numbers.length; at += 2) {
    const from = {x, y};
    x += numbers[at]; y += numbers[at + 1];
    found.push({path, t: +path.dataset.t, x, y, from});
  }
  return found;
}

function nearest(plot, event) {  // the mark whose line or point is nearest to the pointer, with the pointer's place
  const box = one(".frame", plot).getBoundingClientRect();
  const across = box.width / SIDE, down = box.height / SIDE;
  const x = (event.clientX - box.left) / across, y = (event.clientY - box.top) / down;
  let best = null, least = REACH ** 2;
  for (const mark of marksOf(plot)) {
    const from = mark.from ?? mark;
    const far = distance((from.x - x) * across, (from.y - y) * down, (mark.x - from.x) * across, (mark.y - from.y) * down);
    if (far < least) { least = far; best = mark; }
  }
  return best && {...best, x, y};
}

function distance(x, y, across, down) {  // squared, from (0, 0) to the line from (x, y) that goes so far across and down
  const length = across ** 2 + down ** 2;
  const share = length ? Math.min(1, Math.max(0, -(x * across + y * down) / length)) : 0;
  return (x + share * across) ** 2 + (y + share * down) ** 2;
}

function pathOf(points, look) {
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("class", look);
  path.setAttribute("d", points);
  return path;
}

function mark(plot, t, path) {  // all lines and points of a trial; of its lines this one, if it is given
  all("path.hot", plot).forEach(each => each.remove());
  if (t === null) return;
  const svg = one("svg", plot), lines = path?.dataset.t ? [path] : all(`path[data-t="${t}"]:not(.out)`, svg);
  svg.append(...lines.map(line => pathOf(line.getAttribute("d"), "hot")));
  for (const each of marksOf(plot).filter(each => each.t === t && each.path.dataset.ts !== undefined)) {
    svg.append(pathOf(`M${each.x} ${each.y}h0`, "hot points"), pathOf(`M${each.x} ${each.y}h0`, "hot points core"));
  }
}

// --- what is pointed at

function words(t) {
  const [state, own, epochs, score] = data.trials[t];
  const what = `trial ${t}${t === data.best ? ", the best" : ""}${own ? ", the documented recipe" : ""}: ${state}`;
  return score === null ? what : `${what}, ${score} after ${epochs} epoch${epochs === 1 ? "" : "s"}`;
}

const said = found => found.path.dataset.says ?? words(found.t);

let pointed = null;
function point(plot, found) {
  if (pointed && pointed !== plot) mark(pointed, chosen);
  pointed = plot;
  one("#tip").hidden = !found;
  if (!found) return plot && mark(plot, chosen);
  mark(plot, found.t, found.path);
  const box = one(".frame", plot).getBoundingClientRect(), tip = one("#tip");
  tip.textContent = said(found);
  const left = box.left + found.x * box.width / SIDE + 12;
  tip.style.left = `${scrollX + Math.max(4, Math.min(left, document.documentElement.clientWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${scrollY + box.top + found.y * box.height / SIDE - 28}px`;
}

function choose(t) {
  chosen = t;
  all("main .plot").forEach(plot => mark(plot, t));
  all("tr.chosen").forEach(row => row.classList.remove("chosen"));
  const card = one("#card");
  card.hidden = t === null;
  if (t === null) return;
  one(`tr[data-row="${t}"]`)?.classList.add("chosen");
  card.replaceChildren(cardOf(t));
}

// --- the card of a trial

function element(tag, attributes = {}, ...content) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...content);
  return made;
}

function table(rows) {
  const body = element("tbody", {}, ...rows.map(([name, value]) =>
    element("tr", {}, element("th", {scope: "row"}, name), element("td", {}, value instanceof Node ? value : String(value)))));
  return element("table", {}, body);
}

function cardOf(t) {
  const [state, own, epochs, score, place, values, curves, seconds, attempts, reason, digest, run, costs, first, places, sentence] = data.trials[t];
  const title = element("h2", {tabindex: "-1"}, `Trial ${t}`);
  const buttons = element("div", {class: "buttons"},
    element("button", {type: "button", "data-step": -1, "aria-label": "The trial before"}, "←"),
    element("button", {type: "button", "data-step": 1, "aria-label": "The next trial"}, "→"),
    element("button", {type: "button", "data-close": ""}, "Close"));
  const facts = [["state", state + (t === data.best ? ", the best" : "") + (own ? ", the documented recipe" : "")],
    [data.objective, score ?? "none"], ["epochs", `${epochs} of ${data.epochs}`], ["beats of 100 others", place ?? "not compared"],
    ["seconds of training", seconds], ["attempts", attempts], ...Object.entries(costs)];
  places.forEach((where, at) => { if (where) facts.push([`where${places.length > 1 ? `, attempt ${at + 1}` : ""}`, where]); });
  if (first) facts.push(["asked for by", first]);
  if (reason) facts.push(["why", reason]);
  if (digest) facts.push(["recipe", digest]);
  if (run) facts.push(["MLflow run", data.mlflow ? element("a", {href: data.mlflow.replace("{run}", encodeURIComponent(run))}, run) : run]);
  const drawn = data.paths.map((path, at) => [path, values[at]]).filter(([, value]) => value !== "");
  const command = `${data.export} --trial ${t} -o trial-${t}.yaml`;
  return element("div", {}, buttons, title, ...(sentence ? [element("p", {}, sentence)] : []), ...small(curves), table(facts),
    element("h3", {}, "Its values"), table(drawn), element("pre", {class: "command"}, command));
}

function small([scores, train, validation]) {
  const plots = [[data.objective, [["best", scores]]], ["loss: training dashed, validation solid", [["own", train], ["finished", validation]]]];
  return plots.filter(([, lines]) => lines.some(([, numbers]) => numbers.some(each => each !== null))).map(([name, lines]) => {
    const numbers = lines.flatMap(([, each]) => each.filter(number => number !== null));
    const low = Math.min(...numbers), high = Math.max(...numbers), svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${SIDE} ${SIDE}`);
    svg.setAttribute("preserveAspectRatio", "none");
    for (const [look, each] of lines) {
      const spots = each.map((number, at) => number === null ? null : [
        Math.round(SIDE * (at + .5) / data.epochs), Math.round(SIDE * (1 - (high > low ? (number - low) / (high - low) : .5)))]);
      const known = spots.filter(spot => spot);
      if (known.length) svg.append(pathOf(known.length > 1 ? "M" + known.map(spot => spot.join(" ")).join("L") : `M${known[0].join(" ")}h0`, known.length > 1 ? look : `points ${look}`));
    }
    const label = `${name}, from ${low} to ${high}`;
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", label);
    return element("figure", {}, element("div", {class: "plot"}, element("div", {class: "frame"}, svg)), element("figcaption", {}, label));
  });
}

// --- pointer and keyboard; events are caught at the document, whose content may be replaced

document.addEventListener("pointermove", event => {
  const plot = event.target.closest?.("main .plot");
  if (plot && event.pointerType !== "touch") point(plot, nearest(plot, event));
  else if (pointed) { point(null, null); mark(pointed ?? document.body, chosen); }
});

document.addEventListener("click", event => {
  const at = event.target, open = at.closest("[data-open]"), step = at.closest("[data-step]"), plot = at.closest("main .plot");
  if (open) { choose(+open.dataset.open); one("#card h2").focus(); }
  else if (step) { choose(ids.at((ids.indexOf(chosen) + +step.dataset.step) % ids.length)); one(`#card [data-step="${step.dataset.step}"]`).focus(); }
  else if (at.closest("[data-close]")) close();
  else if (at.closest("[data-hide]")) hide(at.closest("[data-hide]"));
  else if (at.closest("[data-sort]")) sort(at.closest("[data-sort]"));
  else if (plot && !dragged) { const found = nearest(plot, event); if (found) choose(found.t); }
});

let opener = null;
document.addEventListener("focusin", event => { if (!event.target.closest("#card")) opener = event.target; });
function close() { choose(null); opener?.focus?.(); }

document.addEventListener("keydown", event => {
  if (event.key === "Escape" && chosen !== null) return close();
  const plot = event.target.closest?.(".plot");
  if (!plot || event.target !== plot) return;
  if (event.key === "Enter" && plot.dataset.at) { choose(+plot.dataset.at); one("#card h2").focus(); }
  const step = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1}[event.key];
  if (!step) return;
  event.preventDefault();
  walk(plot, step);
});

const walked = new WeakMap();  // where the keyboard is in each plot
function walk(plot, step) {
  const found = new Map();  // the last mark of each trial, or of each attempt, from left to right
  const attempts = plot.classList.contains("workers");
  for (const each of marksOf(plot)) found.set(attempts ? each.path : each.t, each);
  const order = [...found].sort(([, one], [, other]) => one.x - other.x || other.y - one.y);
  if (!order.length) return;
  const at = order.findIndex(([key]) => key === walked.get(plot));
  const [key, next] = order[at < 0 ? 0 : (at + step + order.length) % order.length];
  walked.set(plot, key);
  plot.dataset.at = next.t;
  point(plot, next);
  one("#said").textContent = said(next);
}

// --- which trials are shown

function hide(button) {
  const look = button.dataset.hide, shown = button.getAttribute("aria-pressed") === "false";
  button.setAttribute("aria-pressed", shown);
  if (shown) hidden.delete(look); else hidden.add(look);
  show();
}

function fatesOf(path) {  // the buttons of the legend that hide a line or points
  if (path.classList.contains("again")) return [];
  return path.classList.contains("own") ? ["own"] : [...path.classList];
}

function show() {
  const kept = keptTrials();
  for (const row of all("#table tbody tr")) row.hidden = Boolean(kept) && !kept.has(+row.dataset.row);
  all("path.band").forEach(each => each.remove());
  for (const [y, [low, high]] of bands) one(".parallel svg")?.append(pathOf(`M${low} ${y}H${high}`, "band"));
  for (const each of all("[data-kept]")) {
    each.textContent = kept ? `${kept.size} of ${ids.length} trials are kept` : "all trials are shown";
  }
  for (const path of all("main .plot path[data-t], main .plot path[data-ts]")) {
    const off = fatesOf(path).some(fate => hidden.has(fate)) || (kept && path.dataset.t !== undefined && path.closest(".parallel") && !kept.has(+path.dataset.t));
    path.classList.toggle("out", Boolean(off));
  }
}

// --- parallel coordinates: a drag along an axis keeps the trials with values there

const axesOf = plot => all("path.axis", plot).map(path => +path.getAttribute("d").match(/-?\d+/g)[1]);
let drag = null, dragged = false;

document.addEventListener("pointerdown", event => {
  const plot = event.target.closest?.(".plot.parallel");
  dragged = false;
  if (!plot || event.button) return;
  const at = unitsAt(plot, event), axis = axesOf(plot).find(y => Math.abs(y - at.y) < SIDE / 60);
  if (axis === undefined) return;
  drag = {plot, axis, from: at.x};
  event.preventDefault();
});

document.addEventListener("pointerup", event => {
  if (!drag) return;
  const {plot, axis, from} = drag, to = unitsAt(plot, event).x;
  drag = null;
  dragged = true;
  if (Math.abs(to - from) < SIDE / 100) bands.delete(axis); else bands.set(axis, [Math.min(from, to), Math.max(from, to)]);
  show();
});

document.addEventListener("pointercancel", () => { drag = null; });  // a finger scrolls the page instead

function unitsAt(plot, event) {
  const box = one(".frame", plot).getBoundingClientRect();
  return {x: Math.round(SIDE * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width))), y: SIDE * (event.clientY - box.top) / box.height};
}

function within() {
  const plot = one(".plot.parallel");
  if (!plot || !bands.size) return null;
  const spots = new Map();
  for (const each of marks.get(plot) ?? (marksOf(plot), marks.get(plot))) spots.set(each.t, [...(spots.get(each.t) ?? []), each]);
  const has = (some, y, [low, high]) => some.some(each => Math.abs(each.y - y) < 3 && each.x >= low && each.x <= high);
  return new Set([...spots].filter(([, some]) => [...bands].every(([y, band]) => has(some, y, band))).map(([t]) => t));
}

// --- links within the page, which a browser does not follow in the frame where MLflow shows it

document.addEventListener("click", event => {
  const link = event.target.closest("a[href^='#']"), part = link && one(`#${CSS.escape(link.hash.slice(1))}`);
  if (!part || location.protocol !== "blob:") return;
  event.preventDefault();
  part.scrollIntoView();
  part.tabIndex = -1;  // so that the keyboard goes on from there
  part.focus({preventScroll: true});
});

// --- the filter: words that a trial has, and comparisons such as lr>0.1; a trial is kept if all of them hold

document.addEventListener("input", event => {
  if (!event.target.matches("[data-filter]")) return;
  asked = event.target.value;
  fillFilters(event.target);
  show();
});

function fillFilters(but = null) {
  for (const each of all("[data-filter]")) if (each !== but) each.value = asked;
}

function keptTrials() {  // null: all
  const inBands = within(), conditions = asked.toLowerCase().split(/\s+/).filter(each => each).map(conditionOf);
  if (!conditions.length) return inBands;
  const found = all("#table tbody tr").filter(row => {
    const t = +row.dataset.row, text = `${row.textContent} ${data.trials[t][5].join(" ")}`.toLowerCase();
    return (!inBands || inBands.has(t)) && conditions.every(holds => holds(t, text));
  });
  return new Set(found.map(row => +row.dataset.row));
}

function conditionOf(word) {
  const [, name, sign, end] = word.match(/^([^<>=]+)(<=|>=|<|>|=)([^<>=]+)$/) ?? [];
  if (!sign) return (t, text) => text.includes(word);
  return t => valuesNamed(name, t).some(each => compared(each, sign, end));
}

function valuesNamed(name, t) {  // those of a trial, by a column's name, or a field's or its last part
  const [state, , epochs, score, place, values] = data.trials[t];
  const known = [["trial", t], ["state", state.split(" ")[0]], ["epochs", epochs], [data.objective, score], ["beats", place], ...data.paths.map((path, at) => [path, values[at]])];
  const named = ([path]) => [path, path.replace(/\.kind$/, "")].some(each => `.${each.toLowerCase()}`.endsWith(`.${name}`));
  return known.filter(named).map(([, value]) => value).filter(value => value !== null && value !== "");
}

function compared(value, sign, end) {
  if (sign === "=") return isNaN(value) || isNaN(end) ? String(value).toLowerCase() === end : +value === +end;
  return {"<": +value < +end, ">": +value > +end, "<=": +value <= +end, ">=": +value >= +end}[sign];
}

// --- the table of trials

function sort(button) {
  const at = +button.dataset.sort, body = one("#table tbody"), down = button.dataset.down !== "true";
  button.dataset.down = down;
  all("#table th").forEach(each => each.removeAttribute("aria-sort"));
  button.closest("th").setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = row => { const cell = row.cells[at], text = cell.dataset.v ?? cell.textContent; return text !== "" && !isNaN(text) ? +text : text; };
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : (typeof a === "number") - (typeof b === "number") || String(a).localeCompare(b);
  const keyed = all("tr", body).map(row => [value(row), row]);
  keyed.sort(([a], [b]) => (a === "") - (b === "") || (down ? -1 : 1) * compare(a, b));  // rows without a value come last
  body.append(...keyed.map(([, row]) => row));
}

addEventListener("beforeprint", () => all("details").forEach(each => { if (!one("#table", each)) each.open = true; }));
start();
