// script.js: reads /report.json once a second and draws it.
//
// All text is set through textContent, never as markup: chains, agents and reasons come from peers
// and files. Rates of streams are differences between two reports.
"use strict";

const SECOND_MS = 1000;
let isPaused = false;
let before = null; // the report before the current one: {time, streams: Map}

// -- numbers as text

const digits = (value, n) => value.toLocaleString("en", { maximumFractionDigits: n });

function bytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit++; }
  return digits(value, value < 10 ? 2 : value < 100 ? 1 : 0) + " " + units[unit];
}

function milliseconds(value) {
  if (value >= 60000) return digits(value / 60000, 1) + " min";
  if (value >= 1000) return digits(value / 1000, 2) + " s";
  return digits(value, value < 10 ? 2 : value < 100 ? 1 : 0) + " ms";
}

function age(seconds) {
  if (seconds < 90) return digits(seconds, 0) + " s";
  if (seconds < 5400) return digits(seconds / 60, 0) + " min";
  return digits(seconds / 3600, seconds < 36000 ? 1 : 0) + " h";
}

// -- elements

const by = (id) => document.getElementById(id);

function make(name, text, className) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

// Rows of cells; a cell is a text, or [text, class].
function fill(id, rows, nothing) {
  const body = by(id);
  const columns = body.parentElement.tHead.rows[0].cells.length;
  const made = rows.map((cells) => {
    const row = make("tr");
    for (const cell of cells) {
      row.append(Array.isArray(cell) ? make("td", cell[0], cell[1]) : make("td", cell));
    }
    return row;
  });
  if (!made.length) {
    const cell = make("td", nothing, "none");
    cell.colSpan = columns;
    const row = make("tr");
    row.append(cell);
    made.push(row);
  }
  body.replaceChildren(...made);
}

function svg(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// -- charts

// One line over the seconds of the history. The cursor follows the pointer, or the arrow keys while
// the chart has the focus; its value stands in the caption.
class Chart {
  constructor(title, format) {
    this.title = title;
    this.format = format;
    this.values = [];
    this.at = null;
    this.output = make("output");
    const caption = make("figcaption", title);
    caption.append(this.output);
    this.svg = svg("svg", { class: "chart", viewBox: "0 0 600 100", preserveAspectRatio: "none",
                            role: "img", tabindex: "0" });
    this.top = make("span");
    const scale = make("div", undefined, "scale");
    scale.append(make("span", "10 min ago"), this.top, make("span", "now"));
    const figure = make("figure");
    figure.append(caption, this.svg, scale);
    by("charts").append(figure);
    this.svg.addEventListener("pointermove", (event) => {
      const box = this.svg.getBoundingClientRect();
      this.move(Math.round((event.clientX - box.left) / box.width * 599));
    });
    this.svg.addEventListener("pointerleave", () => this.move(null));
    this.svg.addEventListener("blur", () => this.move(null));
    this.svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -10, ArrowRight: 10, Home: -600, End: 600 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.move((this.at === null ? 599 : this.at) + step);
    });
  }

  move(at) {
    this.at = at === null ? null : Math.max(0, Math.min(599, at));
    this.draw();
  }

  set(values) {
    this.values = values;
    this.draw();
  }

  // Second 599 is the latest; a server that is younger than ten minutes has no earlier ones.
  draw() {
    const n = this.values.length;
    const first = 600 - n;
    const highest = Math.max(...this.values, 0);
    const y = (value) => (highest ? 96 - 90 * value / highest : 96).toFixed(1);
    const points = this.values.map((value, i) => `${first + i},${y(value)}`);
    const parts = [svg("line", { class: "grid", x1: 0, x2: 600, y1: 96, y2: 96 })];
    if (n) {
      parts.push(svg("path", { class: "area", d: `M${first},96L${points.join("L")}L599,96Z` }));
      parts.push(svg("path", { class: "line", d: `M${points.join("L")}` }));
    }
    const at = this.at === null ? 599 : this.at;
    const value = at >= first ? this.values[at - first] : undefined;
    if (this.at !== null) {
      parts.push(svg("line", { class: "cursor", x1: at, x2: at, y1: 0, y2: 100 }));
    }
    this.svg.replaceChildren(...parts);
    const mean = n ? this.values.reduce((sum, one) => sum + one, 0) / n : 0;
    this.svg.setAttribute("aria-label", `${this.title}: mean ${this.format(mean)}, ` +
                                        `highest ${this.format(highest)}`);
    this.top.textContent = `mean ${this.format(mean)}, highest ${this.format(highest)}`;
    const when = this.at === null ? "" : ` ${599 - at} s ago`;
    this.output.textContent = value === undefined ? "" : this.format(value) + when;
  }
}

const charts = {
  samples: new Chart("Samples per second", (value) => digits(value, 1)),
  bytes: new Chart("Sent per second", bytes),
  memory_bytes: new Chart("Memory for samples", bytes),
};

// -- the report

function recent(values) {
  const last = values.slice(-10);
  return last.length ? last.reduce((sum, one) => sum + one, 0) / last.length : 0;
}

function drawTiles(report) {
  const counters = report.counters;
  const failed = counters.samples_failed_total;
  const tiles = [
    ["samples per second", digits(recent(report.history.samples), 1)],
    ["sent per second", bytes(recent(report.history.bytes))],
    ["open streams", digits(report.streams.length, 0)],
    ["connections", digits(counters.connections, 0)],
    ["samples in all", digits(counters.samples_sent_total, 0)],
    ["refused samples", digits(failed, 0), failed ? "bad" : ""],
    ["memory for samples", `${bytes(counters.sample_memory_bytes)} of ` +
                           bytes(report.memory_limit_bytes)],
    ["up for", age(report.uptime_s)],
  ];
  by("tiles").replaceChildren(...tiles.map(([name, value, className]) => {
    const tile = make("div", undefined, className);
    tile.append(make("dt", name), make("dd", value));
    return tile;
  }));
}

function drawTimes(times) {
  const stages = [["prepare", "Prepared by a worker"], ["wait", "Waits for order and credit"],
                  ["send", "Sent"]];
  fill("times", stages.map(([key, name]) => {
    const time = times[key];
    return [name, digits(time.n, 0), milliseconds(time.p50_ms), milliseconds(time.p90_ms),
            milliseconds(time.p99_ms), milliseconds(time.max_ms)];
  }), "");
}

function drawStreams(report, now) {
  const samples = new Map();
  fill("streams", report.streams.map((stream) => {
    const key = `${stream.connection}/${stream.stream}`;
    const old = before ? before.streams.get(key) : undefined;
    samples.set(key, stream.samples);
    const rate = old === undefined ? "" : digits(
      (stream.samples - old) / ((now - before.time) / SECOND_MS), 1) + " /s";
    const total = stream.samples_in_all === null ? "" : " of " + digits(stream.samples_in_all, 0);
    return [[`${stream.peer} ${stream.agent}`, "long"], [stream.snapshot, "long"], stream.plan,
            `${stream.group + 1} of ${stream.groups}`,
            stream.window ? `bounded:${stream.window}` : "strict",
            digits(stream.samples, 0) + total, rate, bytes(stream.bytes),
            digits(stream.credit, 0), digits(stream.pending, 0),
            milliseconds(stream.wait_p50_ms), milliseconds(stream.wait_p99_ms),
            digits(stream.failed, 0), age(stream.age_s)];
  }), "Nobody is connected.");
  before = { time: now, streams: samples };
}

function drawConsumers(report) {
  fill("consumers", report.consumers.map((one) => [
    [`${one.peer} ${one.agent}`, "long"], digits(one.streams, 0), digits(one.samples, 0),
    bytes(one.bytes), digits(one.failed, 0), milliseconds(one.prepare.p99_ms),
    milliseconds(one.wait.p99_ms), milliseconds(one.send.p99_ms)]), "Nobody was here yet.");
}

function drawChains(report) {
  fill("slow", report.slowest.map((slow) => [slow.chain, digits(slow.index, 0),
                                             milliseconds(slow.prepare_ms)]),
       "No sample was made yet.");
  fill("refused", report.refused.map((one) => [one.chain, digits(one.index, 0),
                                               [one.reason, "long"], age(one.age_s) + " ago"]),
       "None.");
}

// The snapshot of clients that ask for none, and how many others there are.
function headline(snapshots) {
  const first = snapshots[0];
  if (!first) return "no snapshot";
  const others = snapshots.filter((one) => one.state === "offered").length - 1;
  return `snapshot ${first.name}, ${digits(first.chains, 0)} chains, ` +
         `generation ${first.generation}` + (others ? ` and ${others} more` : "");
}

function drawSnapshots(snapshots) {
  fill("snapshots", snapshots.map((one) => [[one.name, "long"], digits(one.generation, 0),
    digits(one.chains, 0), digits(one.users, 0), one.state === "old" ? "until its streams end" : one.state]),
       "None.");
}

function draw(report, now) {
  by("what").textContent = `${headline(report.snapshots)}, version ${report.version}`;
  drawTiles(report);
  for (const [key, chart] of Object.entries(charts)) chart.set(report.history[key]);
  drawTimes(report.times);
  drawStreams(report, now);
  drawConsumers(report);
  drawSnapshots(report.snapshots);
  drawChains(report);
  fill("counters", Object.entries(report.counters).map(([name, value]) =>
    [name.replaceAll("_", " "), digits(value, 0)]), "");
}

// The state is announced to screen readers, so it is set only when it changes.
function say(text, className) {
  const state = by("state");
  if (state.textContent !== text) state.textContent = text;
  state.className = className;
}

// Returns the report, or null when the server does not give one.
async function load() {
  try {
    const response = await fetch("/report.json", { signal: AbortSignal.timeout(4000) });
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

async function update() {
  if (isPaused) return;
  const report = await load();
  if (isPaused) return;
  if (!report) {
    say("the server does not answer", "bad");
    return;
  }
  draw(report, performance.now());
  say(report.stopping ? "stopping" : "serving", report.stopping ? "bad" : "good");
}

async function run() {
  await update();
  setTimeout(run, SECOND_MS);
}

by("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  by("pause").setAttribute("aria-pressed", String(isPaused));
  by("pause").textContent = isPaused ? "Continue" : "Pause";
  if (isPaused) say("paused", "");
});

run();
