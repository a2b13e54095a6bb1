"use strict";
// The report's script: tooltips of the figures, all fields of a case, and a table that filters and sorts. Text goes into the page as text only.
(() => {
  const { count, columns, spots, samples } = JSON.parse(document.getElementById("data").textContent);
  const value = (row, field) => { const [values, places] = columns[field] || [[]]; return (places ? values[places[row]] : values[row]) ?? null; };
  // -- repeats, and their percentiles where there are at least ten: fewer have no tenth part
  const quantile = (times, part) => { const at = part * (times.length - 1), low = Math.floor(at); return times[low] + (at - low) * ((times[low + 1] ?? times[low]) - times[low]); };
  const ordered = samples.map((times, row) => times.map((part) => (part / 1000) * (value(row, "median_s") ?? value(row, "best_s"))).sort((one, other) => one - other));
  const added = { repeats: (times) => times.length || null };
  for (const part of [10, 90]) added[`p${part}_s`] = (times) => (times.length >= 10 ? quantile(times, part / 100) : null);
  for (const [field, of] of Object.entries(added)) { const values = ordered.map(of); if (values.some((each) => each !== null)) columns[field] = [values]; }
  const fields = Object.keys(columns), $ = (id) => document.getElementById(id);
  const plain = (found) => (found === null ? "" : String(found));
  const three = (x) => String(Number(x.toPrecision(3)));
  const unit = (x, steps) => { const [size, name] = steps.find((each) => x >= each[0]) || steps[steps.length - 1]; return `${three(x / size)} ${name}`; };
  const time = (s) => unit(s, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]);
  const bytes = (n) => unit(n, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"], [1, "B"]]);
  const element = (name, text) => { const made = document.createElement(name); made.textContent = text; return made; };

  // -- the strip of a case: a dot for each repeat, from 90 % to 150 % of the median on every strip; those beyond are at its ends. A line is the median, the bar 80 % of the repeats.
  const [wide, high, least, most] = [150, 14, 0.9, 1.5];
  function strip(row) {
    const times = ordered[row], middle = quantile(times, 0.5), picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const at = (seconds) => 4 + (wide - 8) * Math.min(1, Math.max(0, (seconds / middle - least) / (most - least)));
    const part = (name, attributes) => {
      const shape = document.createElementNS(picture.namespaceURI, name);
      for (const [key, text] of Object.entries(attributes)) shape.setAttribute(key, text);
      picture.append(shape);
    };
    for (const [key, text] of Object.entries({ class: "strip", width: wide, height: high, role: "img", "aria-label": spread(row) })) picture.setAttribute(key, text);
    const [low, up] = ["p10_s", "p90_s"].map((field) => value(row, field));
    if (low !== null) part("rect", { x: at(low), y: 1, width: Math.max(1, at(up) - at(low)), height: high - 2, "fill-opacity": 0.15 });
    for (const seconds of times) part("circle", { cx: at(seconds), cy: high / 2, r: 2.2, "fill-opacity": 0.4 });
    part("rect", { x: at(middle) - 0.75, y: 0, width: 1.5, height: high });
    return picture;
  }
  const spread = (row) => {
    const times = ordered[row], [low, up] = ["p10_s", "p90_s"].map((field) => value(row, field));
    const tenths = low === null ? "" : `; 80 % of them ${time(low)} to ${time(up)}`;
    return `${times.length} repeats, ${time(times[0])} to ${time(times[times.length - 1])}${tenths}`;
  };

  // -- the description of a case: at most eight lines
  function lines(row) {
    const of = (field) => value(row, field), has = (field) => of(field) !== null;
    const took = of("median_s") ?? of("best_s"), phases = fields.filter((each) => /^phase_.*_s$/.test(each) && of(each) > 0);
    const known = phases.reduce((sum, each) => sum + of(each), 0), share = (s) => `${Math.round((100 * s) / took)} %`;
    const parts = phases.sort((one, other) => of(other) - of(one)).slice(0, 3).map((each) => `${each.slice(6, -2).replaceAll("_", " ")} ${share(of(each))}`);
    if (parts.length && known < 0.95 * took) parts.push(`unattributed ${share(took - known)}`);
    const layout = [...new Set(["a", "b", "c"].filter(has).map(of))];
    return [
      [of("algorithm"), has("stationary") ? `S-${of("stationary")}` : of("dataflow"), of("mesh")].filter((each) => each !== null).join(" "),
      layout.length && (layout.length > 1 ? `A ${of("a")}, B ${of("b")}, C ${of("c")}` : `A, B and C ${layout[0]}`),
      `${of("m")} × ${of("n")} × ${of("k")}, ${[of("ranks") && `${of("ranks")} ranks`, of("dtype"), of("label"), of("mode")].filter(Boolean).join(", ")}`,
      took !== null ? time(took) + (has("median_low_s") ? ` (${time(of("median_low_s"))} to ${time(of("median_high_s"))})` : "") + (has("repeats") ? `; ${spread(row)}` : "") : of("status"),
      [has("gflops") && `${three(of("gflops"))} GFLOP/s`, has("percent_of_gemm_only") && !of("oversubscribed") && `${Math.round(of("percent_of_gemm_only"))} % of GEMM-only speed`, has("percent_of_peak") && `${Math.round(of("percent_of_peak"))} % of peak`].filter(Boolean).join(", "),
      has("moved_bytes") && `${bytes(of("moved_bytes"))} moved between all ranks`,
      parts.join(", "),
      [of("noisy") && "noisy", of("oversubscribed") && "more ranks than cores", of("stable") === false && "not stable"].filter(Boolean).join(", "),
    ].filter(Boolean);
  }
  const dialog = $("case");
  dialog.querySelector("button").addEventListener("click", () => dialog.close());
  function open(row) {
    dialog.querySelector("tbody").replaceChildren(...fields.filter((field) => value(row, field) !== null).map((field) => {
      const line = document.createElement("tr"), head = element("th", field);
      head.scope = "row";
      const cell = element("td", field === "repeats" ? spread(row) : plain(value(row, field)));
      if (field === "repeats") cell.prepend(strip(row));
      line.append(head, cell);
      return line;
    }));
    hide();
    dialog.showModal();
  }

  // -- figures
  const tip = $("tip");
  let shown = null, ring = null;
  function hide() { tip.style.display = "none"; if (ring) ring.style.display = "none"; shown = null; }
  function show(figure, spot) {
    const drawing = figure.querySelector(".drawing"), box = drawing.getBoundingClientRect(), [x, y, wide, high, row] = spot;
    if (ring) ring.style.display = "none";
    ring = figure.querySelector(".ring");
    const [left, top, right, bottom] = [(x / 1000) * box.width, (y / 1000) * box.height, ((x + wide) / 1000) * box.width, ((y + high) / 1000) * box.height];
    Object.assign(ring.style, { display: "block", left: `${left - 6}px`, top: `${top - 6}px`, width: `${right - left + 12}px`, height: `${bottom - top + 12}px` });
    if (shown !== row || tip.style.display === "none") tip.replaceChildren(...lines(row).map((line) => element("div", line)));
    shown = row;
    tip.style.display = "block";
    const size = tip.getBoundingClientRect(), at = box.left + right + 14 + size.width > innerWidth ? box.left + left - 14 - size.width : box.left + right + 14;
    tip.style.left = `${Math.max(8, Math.min(at, innerWidth - size.width - 8))}px`;
    const below = box.top + bottom + 12;
    tip.style.top = `${Math.max(4, below + size.height > innerHeight ? box.top + top - size.height - 12 : below)}px`;
  }
  function nearest(figure, event, touched = false) {
    const box = figure.querySelector(".drawing").getBoundingClientRect();
    let best = null, least = touched ? 26 : 16;
    for (const spot of spots[figure.dataset.figure]) {
      const [x, y, wide, high] = spot.map((each, at) => (each / 1000) * (at % 2 ? box.height : box.width));
      const away = Math.hypot(Math.max(x - event.clientX + box.left, 0, event.clientX - box.left - x - wide), Math.max(y - event.clientY + box.top, 0, event.clientY - box.top - y - high));
      if (away < least) [best, least] = [spot, away];
    }
    return best;
  }
  for (const figure of document.querySelectorAll("figure")) {
    const own = spots[figure.dataset.figure], drawing = figure.querySelector(".drawing");
    let at = -1, touched = false;
    drawing.addEventListener("pointerdown", (event) => { touched = event.pointerType === "touch"; });
    drawing.addEventListener("pointermove", (event) => { if (event.pointerType === "touch") return; const found = nearest(figure, event); found ? show(figure, found) : hide(); });
    drawing.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") hide(); });
    drawing.addEventListener("click", (event) => { const found = nearest(figure, event, touched); if (!found) hide(); else if (touched) show(figure, found); else open(found[4]); });
    figure.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) { event.preventDefault(); at = (at + step + own.length + (at < 0 && step < 0)) % own.length; show(figure, own[at]); }
      if (event.key === "Enter" && at >= 0) { event.preventDefault(); open(own[at][4]); }
      if (event.key === "Escape") hide();
    });
    figure.addEventListener("blur", hide);
  }
  tip.addEventListener("click", () => open(shown));
  addEventListener("scroll", hide, { passive: true });

  // -- table
  const first = ["status", "algorithm", "stationary", "dataflow", "mesh", "m", "n", "k", "a", "b", "c", "ranks", "median_s", "best_s", "p10_s", "p90_s", "repeats", "stable", "noisy", "gflops", "percent_of_gemm_only",
    "percent_of_peak", "moved_bytes", "reason"].filter((field) => field in columns);
  const page = 100, every = [...Array(count).keys()];
  const state = { sort: null, down: false, from: 0, all: false, kept: every };
  const digits = {}; // of a column, so that its numbers align
  for (const field of fields) {
    const numbers = columns[field][0].filter((each) => typeof each === "number" && each);
    digits[field] = numbers.every(Number.isInteger) ? 0 : Math.min(9, Math.max(1, 2 - Math.floor(Math.log10(numbers.reduce((least, each) => Math.min(least, Math.abs(each)), Infinity)))));
  }
  const cell = (row, field) => { const found = value(row, field); return typeof found === "number" ? found.toFixed(digits[field]) : plain(found); };
  const words = every.map((row) => fields.map((field) => plain(value(row, field))).join("\u0001").toLowerCase());

  function test(word) {
    const found = /^([a-z][a-z0-9_]*)(<=|>=|!=|=|<|>)(.*)$/.exec(word);
    if (!found) return (row) => words[row].includes(word.toLowerCase());
    const [, field, operator, text] = found, limit = Number(text);
    if (!(field in columns)) throw new Error(`no column is called ${field}: all columns shows their names`);
    return (row) => {
      const own = value(row, field);
      if (operator === "=" || operator === "!=") return (plain(own).toLowerCase() === text.toLowerCase() || (text !== "" && own === limit)) === (operator === "=");
      if (typeof own !== "number" || text === "" || Number.isNaN(limit)) return false;
      return { "<": own < limit, ">": own > limit, "<=": own <= limit, ">=": own >= limit }[operator];
    };
  }
  function compare(one, other) {
    const [left, right] = [value(one, state.sort), value(other, state.sort)];
    if (left === null || right === null) return (left === null) - (right === null); // empty cells last
    const order = typeof left === "number" && typeof right === "number" ? left - right : plain(left).localeCompare(plain(right), "en", { numeric: true });
    return state.down ? -order : order;
  }
  function choose() {
    let trouble = "";
    try {
      const tests = $("filter").value.split(/\s+/).filter(Boolean).map(test);
      state.kept = every.filter((row) => tests.every((each) => each(row)));
    } catch (error) { trouble = error.message; state.kept = []; }
    if (state.sort !== null) state.kept.sort(compare);
    state.from = 0;
    draw();
    if (trouble) $("shown").textContent = trouble;
  }
  function draw() {
    const named = state.all ? [...first, ...fields.filter((field) => !first.includes(field))] : first, header = document.createElement("tr");
    header.append(...named.map((field) => {
      const head = document.createElement("th"), button = element("button", field + (state.sort === field ? (state.down ? " ▼" : " ▲") : ""));
      head.scope = "col";
      button.type = "button";
      button.addEventListener("click", () => { state.down = state.sort === field && !state.down; state.sort = field; choose(); });
      head.setAttribute("aria-sort", state.sort === field ? (state.down ? "descending" : "ascending") : "none");
      head.append(button);
      return head;
    }));
    document.querySelector("#cases thead").replaceChildren(header);
    document.querySelector("#cases tbody").replaceChildren(...state.kept.slice(state.from, state.from + page).map((row) => {
      const line = document.createElement("tr");
      line.addEventListener("click", () => open(row));
      line.append(...named.map((field) => { const made = element("td", cell(row, field)); if (field === "repeats" && value(row, field)) made.replaceChildren(strip(row)); else if (typeof value(row, field) === "number") made.className = "number"; return made; }));
      return line;
    }));
    const last = Math.min(state.from + page, state.kept.length);
    $("shown").textContent = state.kept.length ? `${state.from + 1} to ${last} of ${state.kept.length} of ${count} cases` : `none of ${count} cases`;
    $("before").disabled = state.from === 0;
    $("after").disabled = last >= state.kept.length;
  }
  $("filter").addEventListener("input", choose);
  $("all").addEventListener("change", (event) => { state.all = event.target.checked; draw(); });
  $("before").addEventListener("click", () => { state.from = Math.max(0, state.from - page); draw(); });
  $("after").addEventListener("click", () => { state.from += page; draw(); });

  // -- theme, copying
  const system = matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement;
  const themed = (dark) => { root.dataset.theme = dark ? "dark" : "light"; };
  system.addEventListener("change", () => themed(system.matches));
  $("theme").addEventListener("click", () => themed(root.dataset.theme === "light"));
  for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", () => {
    const code = button.previousElementSibling;
    getSelection().selectAllChildren(code);
    button.textContent = document.execCommand("copy") ? "copied" : "selected"; // works from a file too
  });
  themed(system.matches);
  draw();
  root.dataset.drawn = Math.round(performance.now());
})();
