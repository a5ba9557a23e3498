// Draws the figures from the tables beside them, and keeps the page up to date.
// Everything on the page is there without this module; with it, figures are drawn and the page is live.

const POLL_MILLISECONDS = 4000;
const media = window.matchMedia("(prefers-color-scheme: dark)");

/** The rows of a figure's table as values: a time, a number, or a text a cell. */
function rows(figure, series) {
  const table = figure.querySelector(`table[data-series="${series}"]`);
  return table === null ? [] : Array.from(table.tBodies[0].rows, (row) => Array.from(row.cells, value));
}

function value(cell) {
  const time = cell.querySelector("time");
  if (time !== null) return time.dateTime;
  const data = cell.querySelector("data");
  return data === null ? cell.textContent.trim() : Number(data.value);
}

function column(table, index) {
  return table.map((row) => row[index]);
}

/** A colour by its name in the style sheet. */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function layout(x, y, more = {}) {
  const axis = {
    fixedrange: true, automargin: true, gridcolor: colour("grid"), zerolinecolor: colour("line"),
    linecolor: colour("line"), tickcolor: colour("line"), title: { standoff: 10 },
    // Raised powers would be styled inline, which the policy forbids.
    exponentformat: "e",
  };
  return {
    margin: { l: 52, r: 14, t: 12, b: 44 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colour("soft") },
    hoverlabel: { bgcolor: colour("card"), bordercolor: colour("line"), font: { color: colour("ink"), size: 12 } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    dragmode: false,
    hovermode: "closest",
    xaxis: { ...axis, ...x, title: { ...axis.title, ...x.title } },
    yaxis: { ...axis, ...y, title: { ...axis.title, ...y.title } },
    ...more,
  };
}

/** The axis of times, which Plotly shows as they are written; a phone has room for a few ticks only. */
function dates() {
  return { type: "date", nticks: window.innerWidth < 700 ? 3 : 6, title: { text: "time (UTC)" } };
}

/** Per cent with as many digits as matter. */
const SHARE = ".2~p";
const percent = { tickformat: ".0%", hoverformat: ".2%" };

function burnDown(figure) {
  const left = rows(figure, "left");
  const projection = rows(figure, "projection");
  const changes = rows(figure, "changes");
  const traces = [{
    name: "left", x: column(left, 0), y: column(left, 2), mode: "lines", line: { color: colour("accent"), width: 2, shape: "hv" },
    fill: "tozeroy", fillcolor: `${colour("accent")}1f`, customdata: column(left, 1),
    hovertemplate: "%{x}<br>%{y:.2%} left after entry %{customdata}<extra></extra>",
  }];
  if (projection.length) {
    traces.push({
      name: "at the recent pace", x: column(projection, 0), y: column(projection, 1), mode: "lines",
      line: { color: colour("soft"), width: 1.5, dash: "dot" }, hovertemplate: "%{x}<br>%{y:.1%} left if it goes on like this<extra></extra>",
    });
  }
  const limit = { type: "line", xref: "paper", x0: 0, x1: 1, y0: 0, y1: 0, line: { color: colour("out"), width: 1.5 } };
  const marks = changes.map((row) => ({
    type: "line", yref: "paper", y0: 0, y1: 1, x0: row[0], x1: row[0], line: { color: colour("low"), width: 1, dash: "dash" },
  }));
  const note = { xref: "paper", x: 0, xanchor: "left", y: 0, yanchor: "bottom", text: "limit", showarrow: false, font: { color: colour("out"), size: 11 } };
  return [traces, layout(
    dates(), { ...percent, range: [0, 1.03], title: { text: "left of the budget" } },
    { shapes: [limit, ...marks], annotations: [note], showlegend: projection.length > 0, hovermode: "x", hoverdistance: -1 },
  )];
}

function curve(figure) {
  const points = rows(figure, "curve").filter((row) => row[2] > 0);
  const spent = points.filter((row) => row[1] > 0);
  const binding = points.find((row) => row[4] === "yes");
  const traces = [
    { name: "budget", x: column(points, 0), y: column(points, 2), mode: "lines", line: { color: colour("out"), width: 2 }, hovertemplate: "α = %{x:.4~g}<br>budget %{y:.4~g}<extra></extra>" },
    { name: "spent", x: column(spent, 0), y: column(spent, 1), mode: "lines+markers", line: { color: colour("accent"), width: 2 }, marker: { size: 4 }, hovertemplate: "α = %{x:.4~g}<br>spent %{y:.4~g}<extra></extra>" },
  ];
  const shapes = [];
  if (binding) {
    traces.push({
      name: "binds", x: [binding[0]], y: [binding[1] > 0 ? binding[1] : binding[2]], mode: "markers",
      marker: { size: 11, symbol: "circle-open", color: colour("ink"), line: { width: 2 } }, hovertemplate: "α = %{x:.4~g} binds<extra></extra>",
    });
    shapes.push({ type: "line", yref: "paper", y0: 0, y1: 1, x0: binding[0], x1: binding[0], line: { color: colour("soft"), width: 1, dash: "dot" } });
  }
  const orders = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
  return [traces, layout(
    { type: "log", tickvals: orders, ticktext: orders.map(String), title: { text: "order α" } },
    { type: "log", dtick: 1, title: { text: "ε(α)" } },
    { shapes, showlegend: true, hovermode: "x", hoverdistance: -1 },
  )];
}

/** The axis of δ in powers of ten: as many ticks as can be read. */
function decades(deltas) {
  const logs = deltas.map(Math.log10);
  const [least, most] = [Math.min(...logs), Math.max(...logs)];
  return { type: "log", dtick: Math.max(1, Math.ceil((most - least) / 7)), range: [least - 0.5, most + 0.5], tickformat: "~e" };
}

function profile(figure) {
  const points = rows(figure, "profile").filter((row) => row[1] > 0);
  const [[epsilon, delta]] = rows(figure, "limit");
  const traces = [
    { name: "all that is planned", x: column(points, 0), y: column(points, 1), mode: "lines", line: { color: colour("accent"), width: 2 }, hovertemplate: "ε = %{x:.4~g}<br>δ ≤ %{y:.3~g}<extra></extra>" },
    { name: "limit", x: [epsilon], y: [delta], mode: "markers", marker: { size: 10, symbol: "x", color: colour("out") }, hovertemplate: "limit: ε = %{x:.4~g}, δ = %{y:.3~g}<extra></extra>" },
  ];
  const line = { type: "line", line: { color: colour("out"), width: 1, dash: "dot" } };
  const shapes = [
    { ...line, xref: "paper", x0: 0, x1: 1, y0: delta, y1: delta },
    { ...line, yref: "paper", y0: 0, y1: 1, x0: epsilon, x1: epsilon },
  ];
  return [traces, layout(
    { rangemode: "tozero", title: { text: "ε" } }, { ...decades([...column(points, 1), delta]), title: { text: "δ(ε)" } },
    { shapes, showlegend: true, hovermode: "x", hoverdistance: -1 },
  )];
}

function noise(figure) {
  const points = rows(figure, "noise");
  const kinds = [...new Set(column(points, 2))];
  const colours = [colour("accent"), colour("low-fill"), colour("good"), colour("out"), colour("soft")];
  const traces = kinds.map((kind, index) => {
    const own = points.filter((row) => row[2] === kind);
    return {
      name: kind, x: column(own, 1), y: column(own, 3), customdata: column(own, 0), mode: "lines+markers",
      line: { width: 1, color: colours[index % colours.length] }, marker: { size: 5 },
      hovertemplate: `entry %{customdata}<br>%{y:.4~g} × sensitivity<extra>${kind}</extra>`,
    };
  });
  const noises = column(points, 3).filter((each) => each > 0);
  const wide = Math.max(...noises) > Math.min(1e15, 30 * Math.min(...noises));
  const scale = wide ? { type: "log" } : { rangemode: "tozero" };
  return [traces, layout(dates(), { ...scale, title: { text: "noise over sensitivity" } }, { showlegend: kinds.length > 1 })];
}

/** A share as it is drawn: Plotly has no scale for the smallest numbers, and nobody would see them. */
function visible(share) {
  return share < 1e-9 ? 0 : share;
}

function cost(figure) {
  const points = rows(figure, "cost");
  const complete = figure.hasAttribute("data-complete");
  const traces = [{
    name: "each step", x: column(points, 1), y: column(points, 3).map(visible), customdata: column(points, 0), mode: "markers",
    marker: { size: 6, color: colour("accent") }, hovertemplate: "entry %{customdata}<br>%{y:.3%} of the budget<extra></extra>",
  }];
  const more = { showlegend: complete };
  if (complete) {
    traces.push({
      name: "granted in all", x: column(points, 1), y: column(points, 4).map(visible), yaxis: "y2", mode: "lines",
      line: { color: colour("low-fill"), width: 2, shape: "hv" }, hovertemplate: "%{y:.2%} in all<extra></extra>",
    });
    more.yaxis2 = { overlaying: "y", side: "right", fixedrange: true, automargin: true, showgrid: false, tickmode: "auto", nticks: 6, rangemode: "tozero", tickformat: SHARE, color: colour("low"), title: { text: "granted in all", standoff: 10 } };
  }
  return [traces, layout(dates(), { tickformat: SHARE, nticks: 6, rangemode: "tozero", title: { text: "share of the budget" } }, more)];
}

const CHARTS = { "burn-down": burnDown, curve, profile, noise, cost };
const CONFIG = { displayModeBar: false, responsive: true, showTips: false };

function draw() {
  if (!("Plotly" in window)) return;
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const [traces, shape] = CHARTS[figure.dataset.chart](figure);
    window.Plotly.react(figure.querySelector(".plot"), traces, shape, CONFIG);
  }
}

/** Put the new parts of a page in place of the old ones; what a person is working in stays as it is. */
function replaceParts(fresh) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const update = fresh.getElementById(part.id);
    if (update === null || update.innerHTML === part.innerHTML) continue;
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    if (focused !== null && focused.matches("input, select, textarea")) continue;
    const place = focused === null ? null : { href: focused.getAttribute("href"), label: focused.getAttribute("aria-label") };
    const offset = part.querySelector(".scroll")?.scrollLeft ?? 0;
    part.innerHTML = update.innerHTML;
    const scroller = part.querySelector(".scroll");
    if (scroller !== null) scroller.scrollLeft = offset;
    if (place !== null) focusAgain(part, place);
  }
}

function focusAgain(part, place) {
  const same = Array.from(part.querySelectorAll("a[href], [tabindex]"))
    .find((element) => element.getAttribute("href") === place.href && element.getAttribute("aria-label") === place.label);
  same?.focus({ preventScroll: true });
}

class Live {
  constructor(status, button) {
    this.status = status;
    this.button = button;
    this.tag = document.body.dataset.tag ?? null;
    this.timer = null;
    this.paused = false;
    button.addEventListener("click", () => this.toggle());
    document.addEventListener("visibilitychange", () => this.schedule());
    this.schedule();
  }

  toggle() {
    this.paused = !this.paused;
    this.button.setAttribute("aria-pressed", String(this.paused));
    this.button.textContent = this.paused ? "Resume" : "Pause";
    this.status.textContent = this.paused ? "Paused" : "Live";
    this.schedule();
  }

  schedule() {
    clearTimeout(this.timer);
    if (!this.paused && !document.hidden) this.timer = setTimeout(() => this.poll(), POLL_MILLISECONDS);
  }

  async poll() {
    try {
      await this.look();
    } catch {
      this.status.textContent = "The service does not answer; trying again";
    }
    this.schedule();
  }

  async look() {
    const headers = this.tag === null ? {} : { "If-None-Match": this.tag };
    const answer = await fetch(location.href, { headers, cache: "no-store" });
    if (answer.redirected) return location.reload();
    if (answer.status === 304) return this.answered();
    if (!answer.ok) throw new Error(String(answer.status));
    this.tag = answer.headers.get("ETag");
    replaceParts(new DOMParser().parseFromString(await answer.text(), "text/html"));
    draw();
    this.status.textContent = `Updated ${new Date().toLocaleTimeString()}`;
  }

  answered() {
    if (!this.status.textContent.startsWith("Updated")) this.status.textContent = "Live";
  }
}

draw();
media.addEventListener("change", draw);
const status = document.querySelector("[data-live-status]");
if (status !== null) new Live(status, document.querySelector("[data-live-pause]"));
