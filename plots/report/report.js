"use strict";
// The report's own script: figures with the full case on hover, and a table that filters and sorts. Text goes into the page as text only.
(() => {
  const { fields, rows, figures } = JSON.parse(document.getElementById("data").textContent);
  const at = Object.fromEntries(fields.map((field, index) => [field, index]));

  const plain = (value) => {
    if (value === null || value === undefined) return "";
    if (Array.isArray(value)) return value.length > 8 ? `${value.slice(0, 8).map(plain).join(" ")} ... (${value.length})` : value.map(plain).join(" ");
    return typeof value === "number" && !Number.isInteger(value) ? String(Number(value.toPrecision(6))) : String(value);
  };

  // -- figures
  const tip = document.getElementById("tip");
  const show = (number, event) => {
    const row = rows[number];
    if (!row) return;
    tip.replaceChildren(...fields.flatMap((field, index) => {
      if (row[index] === null || plain(row[index]) === "") return [];
      const line = document.createElement("div");
      const name = document.createElement("b");
      name.textContent = field + " ";
      line.append(name, plain(row[index]));
      return [line];
    }));
    tip.style.display = "block";
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - 16 - box.width : event.clientX + 16;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 12, innerHeight - box.height - 8))}px`;
  };
  const hide = () => { tip.style.display = "none"; };
  const buttons = ["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]; // none that sends data anywhere
  const options = { displaylogo: false, responsive: true, modeBarButtons: [buttons] };
  // on a phone labels keep the room for what they label: their middle is left out
  const short = (text) => (text.length > 22 ? `${text.slice(0, 10)}\u2026${text.slice(-11)}` : text);
  const narrow = ({ data, layout }) => {
    layout.font.size = 10;
    Object.assign(layout.margin, { l: 30, r: 6 });
    if (layout.yaxis.ticktext) layout.yaxis.ticktext = layout.yaxis.ticktext.map(short);
    layout.xaxis.title.text = layout.xaxis.title.text.replace(/(.{16,}?) /g, "$1<br>");
    if ((layout.xaxis.ticktext || []).length > 24) layout.xaxis.showticklabels = false;
    layout.dragmode = false; // a finger scrolls the page
    for (const trace of data) if (trace.colorbar) Object.assign(trace.colorbar, { orientation: "h", y: 1.02, yanchor: "bottom", x: 0.5, len: 0.9 });
    if (data.some((trace) => trace.colorbar)) layout.margin.t = 60;
  };
  for (const element of document.querySelectorAll(".figure")) {
    const figure = figures[Number(element.dataset.figure)];
    const phone = innerWidth <= 600;
    if (phone) narrow(figure);
    const { data, layout } = figure;
    Plotly.newPlot(element, data, layout, { ...options, displayModeBar: phone ? false : "hover" }).then(() => {
      element.on("plotly_hover", ({ points, event }) => show(points[0].customdata, event));
      element.on("plotly_unhover", hide);
    });
  }
  addEventListener("scroll", hide, { passive: true });

  // -- table
  const first = ["status", "algorithm", "stationary", "dataflow", "mesh", "m", "n", "k", "a", "b", "c", "ranks", "median_s", "best_s", "stable", "noisy", "gflops", "percent_of_roof",
    "percent_of_peak", "moved_bytes", "reason"].filter((field) => field in at && rows.some((row) => row[at[field]] !== null));
  const page = 100;
  const state = { sort: null, down: false, from: 0, all: false, kept: rows };
  const [head, body] = ["thead", "tbody"].map((name) => document.querySelector(`#cases ${name}`));
  const columns = () => (state.all ? [...first, ...fields.filter((field) => !first.includes(field))] : first);
  const search = rows.map((row) => row.map(plain).join("\u0001").toLowerCase());

  const test = (word) => {
    const found = /^([a-z_]+)(<=|>=|!=|=|<|>)(.*)$/.exec(word);
    if (!found || !(found[1] in at)) return (row, index) => search[index].includes(word.toLowerCase());
    const [, field, operator, text] = found;
    return (row) => {
      const value = row[at[field]];
      if (operator === "=" || operator === "!=") return (plain(value).toLowerCase() === text.toLowerCase() || (text !== "" && value === Number(text))) === (operator === "=");
      if (typeof value !== "number" || text === "" || Number.isNaN(Number(text))) return false;
      const limit = Number(text);
      return { "<": value < limit, ">": value > limit, "<=": value <= limit, ">=": value >= limit }[operator];
    };
  };
  const compare = (one, other) => {
    if (one === null || other === null) return (one === null) - (other === null); // empty cells last
    const order = typeof one === "number" && typeof other === "number" ? one - other : plain(one).localeCompare(plain(other), "en", { numeric: true });
    return state.down ? -order : order;
  };
  const choose = () => {
    const tests = document.getElementById("filter").value.split(/\s+/).filter(Boolean).map(test);
    state.kept = rows.filter((row, index) => tests.every((each) => each(row, index)));
    if (state.sort !== null) state.kept.sort((one, other) => compare(one[at[state.sort]], other[at[state.sort]]));
    state.from = 0;
    draw();
  };
  const draw = () => {
    const header = document.createElement("tr");
    for (const field of columns()) {
      const cell = document.createElement("th");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = field + (state.sort === field ? (state.down ? " \u25bc" : " \u25b2") : "");
      button.addEventListener("click", () => { state.down = state.sort === field && !state.down; state.sort = field; choose(); });
      cell.setAttribute("aria-sort", state.sort === field ? (state.down ? "descending" : "ascending") : "none");
      cell.append(button);
      header.append(cell);
    }
    head.replaceChildren(header);
    body.replaceChildren(...state.kept.slice(state.from, state.from + page).map((row) => {
      const line = document.createElement("tr");
      for (const field of columns()) {
        const cell = document.createElement("td");
        cell.textContent = plain(row[at[field]]);
        if (typeof row[at[field]] === "number") cell.className = "number";
        line.append(cell);
      }
      return line;
    }));
    const last = Math.min(state.from + page, state.kept.length);
    document.getElementById("shown").textContent = state.kept.length ? `${state.from + 1} to ${last} of ${state.kept.length} of ${rows.length} cases` : `none of ${rows.length} cases`;
    document.getElementById("before").disabled = state.from === 0;
    document.getElementById("after").disabled = last >= state.kept.length;
  };
  document.getElementById("filter").addEventListener("input", choose);
  document.getElementById("all").addEventListener("change", (event) => { state.all = event.target.checked; draw(); });
  document.getElementById("before").addEventListener("click", () => { state.from = Math.max(0, state.from - page); draw(); });
  document.getElementById("after").addEventListener("click", () => { state.from += page; draw(); });
  draw();
})();
