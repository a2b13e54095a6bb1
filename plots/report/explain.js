"use strict";
// The page of one run, or of two side by side: a slider through its time. Times are whole ticks, `ticks` of them a case.
(() => {
  const { cases, ticks } = JSON.parse(document.getElementById("data").textContent);
  // a bar of a rank, as launch/models/run_description.py has it
  const [STEP, DOES, START, STOP, HELD, BYTES, READS, WRITES, MOVES, COMPUTES] = Array(10).keys();
  const VERBS = { multiply: "multiplies", fetch: "fetches", send: "sends", add: "adds", collective: "with its group", copy: "copies", wait: "waits" };
  const COLUMNS = [["multiply"], ["fetch"], ["send", "add"], ["collective", "copy", "wait"]];
  const longest = Math.max(...cases.map((each) => each.time_s)), most = Math.max(...cases.map((each) => each.ranks.length));
  const state = { t: 0, rank: most > 1 ? 0 : -1, zoom: 1, playing: false };
  const $ = (selector, within = document) => within.querySelector(selector);
  const sum = (list) => list.reduce((total, each) => total + each, 0);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  let look = {};
  const readColours = () => { look = Object.fromEntries([...Object.keys(VERBS), "paper", "ink", "soft", "line", "panel", "accent"].map((name) => [name, colour(name)])); look.dark = document.documentElement.dataset.theme === "dark"; };

  // -- words
  const bytes = (count) => { const at = count < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(count) / 10)); return `${Number((count / 1024 ** at).toPrecision(3))} ${["B", "KiB", "MiB", "GiB", "TiB"][at]}`; };
  const seconds = (s) => (s >= 1 ? `${s.toFixed(3)} s` : s >= 1e-3 ? `${(s * 1e3).toFixed(3)} ms` : `${(s * 1e6).toFixed(2)} µs`);
  const span = (ranges) => (ranges.length === 1 ? ranges[0].join(":") : `${ranges.length} of ${ranges[0][0]}:${ranges[ranges.length - 1][1]}`);
  const ends = (ranges) => ranges.length > 0;
  const region = (view, number) => { const [name, , rows, cols] = view.regions[number]; return ends(rows) && ends(cols) ? `${name}[${span(rows)}, ${span(cols)}]` : `${name}[]`; };
  const others = (bar, rank) => { const list = [...new Set(bar[MOVES].map(([source, target]) => (source === rank ? target : source)))]; return list.length > 3 ? `${list.length} ranks` : list.join(", "); };
  function words(view, rank, bar, t) { // what a bar is, in words
    const verb = bar[DOES], read = bar[READS].map((each) => region(view, each)), written = bar[WRITES].map((each) => region(view, each));
    const moved = sum(bar[MOVES].map((each) => each[2])), share = bar[STOP] > bar[START] ? Math.floor((100 * (t - bar[START])) / (bar[STOP] - bar[START])) : 100;
    const size = moved ? ` (${bytes(moved)}, ${share} %)` : "", who = others(bar, rank);
    if (verb === "multiply") return `${read.join(" · ") || "rows"}${written.length ? ` → ${written}` : ""}${moved ? `, reading in place from ${who}` : ""}`;
    if (verb === "fetch") return `${written[0] || "a value"}${who ? ` from ${who}` : ""}${size}`;
    if (verb === "send") return `${read[0] || "a value"}${who ? ` to ${who}` : ""}${size}`;
    if (verb === "add") return `to ${written[0] || "a sum"}${who ? ` of ${who}` : ""}${size}`;
    if (verb === "collective") return `${written[0] || read[0] || "a value"}${who ? ` with ${who}` : ""}${size}`;
    if (verb === "copy") return written[0] || "";
    return written[0] ? `for ${written[0]}` : "for all ranks";
  }

  // -- one case
  class View {
    constructor(element, data) {
      Object.assign(this, data);
      this.element = element;
      this.scale = longest / this.time_s; // its ticks in a tick of the page
      this.count = this.ranks.length;
      this.edges = this.ranks.map((bars) => [...new Set(bars.flatMap((bar) => [bar[START], bar[STOP]]))].sort((one, other) => one - other));
      this.all = [...new Set(this.edges.flat())].sort((one, other) => one - other);
      for (const matrix of this.matrices) matrix.owner = (i, j, replica) => matrix.places[0][matrix.rows[i][1]] + matrix.places[1][matrix.cols[j][1]] + matrix.places[2][replica];
      for (const matrix of this.matrices) matrix.replicaOf = this.ranks.map(() => 0);
      for (const matrix of this.matrices) matrix.places[2].forEach((more, replica) => { for (const row of matrix.places[0]) for (const col of matrix.places[1]) matrix.replicaOf[row + col + more] = replica; });
      this.pairs = Array.from({ length: this.count }, () => new Float64Array(this.count));
      for (const bars of this.ranks) for (const bar of bars) for (const [source, target, count] of bar[MOVES]) this.pairs[source][target] += count;
      const used = Object.keys(VERBS).filter((verb) => this.ranks.some((bars) => bars.some((bar) => bar[DOES] === verb)));
      this.columns = COLUMNS.map((verbs) => verbs.filter((verb) => used.includes(verb))).filter((verbs) => verbs.length);
      this.labels = [...this.columns.map((verbs) => verbs.map((verb) => VERBS[verb]).join(", ")), "holds"];
      $(".now thead tr", element).append(...["rank", ...this.labels].map((label) => { const cell = document.createElement("th"); cell.textContent = label; return cell; }));
      this.canvases = ["matrices", "timeline", "pairs"].map((name) => $(`.${name}`, element));
      this.rows = this.ranks.map((_, rank) => this.row(rank));
      $(".now tbody", element).append(...this.rows.map((row) => row.element));
      $(".legend", element).append(...used.map((verb) => this.entry(verb, VERBS[verb])), this.entry("held", "holds a copy"), this.entry("own", "own tiles of the rank"));
      this.pointing();
    }

    entry(name, text) {
      const item = document.createElement("li"), mark = document.createElement("i");
      mark.style.cssText = name === "own" ? "border: 2px solid var(--ink)" : name === "held" ? "border: 2px dotted var(--fetch)" : `background: var(--${name})`;
      item.append(mark, text);
      return item;
    }

    row(rank) {
      const element = document.createElement("tr"), head = document.createElement("th");
      head.scope = "row";
      head.textContent = rank;
      head.addEventListener("click", () => choose(rank));
      element.dataset.rank = rank;
      const cells = this.labels.map((label) => { const cell = document.createElement("td"); cell.dataset.label = label; return cell; });
      element.append(head, ...cells);
      return { element, head, cells, shown: "" };
    }

    local(t) { return t * this.scale; }
    active(rank, t) { return this.ranks[rank].filter((bar) => bar[START] <= t && t < bar[STOP]); }
    held(rank, t) { return this.ranks[rank].filter((bar) => t < bar[HELD] && (bar[COMPUTES] ? bar[START] : bar[STOP]) <= t); }
    chosen() { return state.rank < 0 || state.rank >= this.count ? [...this.ranks.keys()] : [state.rank]; }

    show() {
      const t = this.local(state.t);
      this.drawMatrices(t);
      this.drawTimeline(t);
      this.say(t);
      clearTimeout(this.later);
      const wait = this.count > 16 ? (this.updated || 0) + 200 - performance.now() : 0; // of many ranks five times a second
      if (wait <= 0) this.update();
      else this.later = setTimeout(() => this.update(), wait);
    }

    update() {
      const t = this.local(state.t);
      this.updated = performance.now();
      this.drawPairs(t);
      if ($(".everyone", this.element).open) this.rows.forEach((row, rank) => this.fill(row, rank, t));
    }

    fill(row, rank, t) {
      const active = this.active(rank, t), held = this.held(rank, t);
      row.element.classList.toggle("chosen", rank === state.rank);
      const shown = `${active.map((bar) => `${bar[STEP]}:${Math.floor((50 * (t - bar[START])) / (bar[STOP] - bar[START]))}`)}|${held.map((bar) => bar[STEP])}`;
      if (shown === row.shown) return;
      row.shown = shown;
      this.columns.forEach((verbs, at) => row.cells[at].replaceChildren(...active.filter((bar) => verbs.includes(bar[DOES])).map((bar) => {
        const item = document.createElement("span");
        Object.assign(item.dataset, { does: bar[DOES], step: bar[STEP] });
        item.textContent = `${verbs.length > 1 ? `${VERBS[bar[DOES]]} ` : ""}${words(this, rank, bar, t)}`;
        return item;
      })));
      const last = row.cells[row.cells.length - 1];
      last.textContent = held.length ? `${held.length} buffer${held.length > 1 ? "s" : ""}, ${bytes(sum(held.map((bar) => bar[BYTES])))}` : "";
      last.dataset.steps = held.map((bar) => bar[STEP]).join(" ");
    }

    say(t) {
      const element = $(".status", this.element), strong = document.createElement("b");
      const list = this.chosen();
      if (list.length > 1) {
        const busy = Object.keys(VERBS).map((verb) => [verb, list.filter((rank) => this.active(rank, t).some((bar) => bar[DOES] === verb)).length]).filter((each) => each[1]);
        strong.textContent = `All ${this.count} ranks: `;
        element.replaceChildren(strong, t >= ticks ? "done." : busy.map(([verb, count]) => `${count} ${count > 1 ? (verb === "collective" ? "in collectives" : verb) : VERBS[verb]}`).join(", ") || "idle.");
        return;
      }
      const [rank] = list, active = this.active(rank, t), held = this.held(rank, t);
      strong.textContent = `Rank ${rank} `;
      const texts = active.map((bar) => `${VERBS[bar[DOES]]} ${words(this, rank, bar, t)}`);
      const idle = t >= ticks || !this.ranks[rank].some((bar) => bar[STOP] > t) ? "is done" : "is idle";
      const holds = held.length ? `; holds ${held.length} buffer${held.length > 1 ? "s" : ""}, ${bytes(sum(held.map((bar) => bar[BYTES])))}` : "";
      element.replaceChildren(strong, `${texts.join("; ") || idle}${holds}.`);
    }

    // -- the matrices: B above C, A to its left, so that rows of A and columns of B meet in C
    drawMatrices(t) {
      const [canvas] = this.canvases, [a, b, c] = this.matrices;
      const wide = canvas.clientWidth;
      if (!wide) return; // not laid out yet, or hidden
      const damp = (extent) => extent ** 0.5;
      const [m, k, n] = [damp(a.shape[0]), damp(a.shape[1]), damp(c.shape[1])].map((each, _, list) => Math.max(each, 0.3 * Math.max(...list)));
      const gap = 34, unit = Math.min((wide - gap - 26) / (k + n), 620 / (k + m));
      const at = { A: [0, gap + 20 + k * unit, k * unit, m * unit], B: [k * unit + gap, 20, n * unit, k * unit], C: [k * unit + gap, gap + 20 + k * unit, n * unit, m * unit] };
      const high = 24 + (k + m) * unit + gap, left = (wide - (k + n) * unit - gap) / 2;
      for (const box of Object.values(at)) box[0] += left;
      this.boxes = at;
      const draw = sized(canvas, wide, high), key = [wide, state.rank, look.paper].join();
      if (this.still?.key !== key) {
        this.still = { key, canvas: document.createElement("canvas") };
        const under = sized(this.still.canvas, wide, high);
        for (const matrix of this.matrices) this.drawTiles(under, matrix, at[matrix.name]);
      }
      draw.drawImage(this.still.canvas, 0, 0, wide, high);
      for (const rank of this.chosen()) {
        for (const bar of this.held(rank, t)) if (!bar[COMPUTES]) for (const each of bar[WRITES]) this.mark(draw, at, each, "held");
        for (const bar of this.active(rank, t)) {
          if (bar[DOES] === "multiply") for (const each of bar[READS]) this.mark(draw, at, each, "read");
          const touched = bar[DOES] === "send" ? bar[READS] : bar[WRITES].length ? bar[WRITES] : bar[READS];
          if (bar[DOES] !== "wait") for (const each of touched) this.mark(draw, at, each, bar[DOES]);
        }
      }
      for (const matrix of this.matrices) this.drawNumbers(draw, matrix, at[matrix.name]);
    }

    viewed(matrix) { return state.rank >= 0 && state.rank < this.count ? matrix.replicaOf[state.rank] || 0 : 0; }

    tiles(matrix, [x, y, width, height], each) {
      const { rows, cols, shape } = matrix, across = width / shape[1], down = height / shape[0];
      const skip = (list, length) => Math.max(1, Math.ceil((3 * list.length) / length)); // not finer than 3 pixels
      const [by, bx] = [skip(rows, height), skip(cols, width)];
      for (let i = 0; i < rows.length; i += by) for (let j = 0; j < cols.length; j += bx) {
        const [top, start] = [i ? rows[i - 1][0] : 0, j ? cols[j - 1][0] : 0];
        const [low, stop] = [rows[Math.min(i + by, rows.length) - 1][0], cols[Math.min(j + bx, cols.length) - 1][0]];
        each(i, j, x + start * across, y + top * down, (stop - start) * across, (low - top) * down);
      }
    }

    drawTiles(draw, matrix, box) {
      const replica = this.viewed(matrix), count = matrix.places[2].length;
      for (let card = Math.min(count - 1, 3); card > 0; card--) { // the other replicas, behind
        draw.strokeStyle = look.line;
        draw.fillStyle = look.panel;
        draw.fillRect(box[0] + 4 * card, box[1] - 4 * card, box[2], box[3]);
        draw.strokeRect(box[0] + 4 * card, box[1] - 4 * card, box[2], box[3]);
      }
      draw.fillStyle = look.paper;
      draw.fillRect(...box);
      const own = [];
      this.tiles(matrix, box, (i, j, x, y, width, height) => {
        const owner = matrix.owner(i, j, replica), hue = (330 + ((owner * 123.6) % 200)) % 360; // colours help the eye; the number is exact
        draw.fillStyle = look.dark ? `hsl(${hue} 18% ${20 + (owner % 3) * 5}%)` : `hsl(${hue} 35% ${93 - (owner % 3) * 4}%)`;
        draw.fillRect(x, y, width, height);
        draw.lineWidth = 1;
        draw.strokeStyle = look.line;
        if (width > 5 && height > 5) draw.strokeRect(x, y, width, height);
        if (owner === state.rank) own.push([x, y, width, height]);
      });
      draw.lineWidth = 2.5;
      draw.strokeStyle = look.ink;
      for (const [x, y, width, height] of own) draw.strokeRect(x + 1, y + 1, width - 2, height - 2);
      draw.fillStyle = look.ink;
      draw.font = "600 13px system-ui, sans-serif";
      draw.textAlign = "left";
      const title = `${matrix.name}${matrix.transposed ? "ᵀ" : ""} ${matrix.shape.join("×")}`;
      const more = count > 1 ? `${matrix.terms.some((term) => term) ? "term" : "replica"} ${replica} of ${count}` : matrix.text;
      const both = `${title}, ${more}`;
      draw.fillText(draw.measureText(both).width < box[2] + 20 ? both : title, box[0], box[1] - 6 - 4 * Math.min(count - 1, 3));
    }

    drawNumbers(draw, matrix, box) { // on top of what is marked
      const replica = this.viewed(matrix), count = matrix.places[2].length;
      draw.textAlign = "center";
      draw.textBaseline = "middle";
      this.tiles(matrix, box, (i, j, x, y, width, height) => {
        if (width < 7 || height < 7) return;
        const own = matrix.owner(i, j, replica), list = count > 1 && count <= 4 ? [...Array(count).keys()].map((each) => matrix.owner(i, j, each)) : [own];
        draw.font = `${own === state.rank ? "700" : "500"} ${Math.min(13, height, Math.max(7, 0.62 * width))}px system-ui, sans-serif`;
        const text = [list.join(" "), String(own)].find((each) => draw.measureText(each).width < width);
        if (text) write(draw, text, x + width / 2, y + height / 2);
      });
      draw.textBaseline = "alphabetic";
    }

    mark(draw, at, number, what) {
      const [name, , rows, cols] = this.regions[number], matrix = this.matrices.find((each) => each.name === name);
      const [x, y, width, height] = at[name], across = width / matrix.shape[1], down = height / matrix.shape[0];
      draw.save();
      const paint = what === "held" ? look.fetch : what === "read" ? look.multiply : look[what];
      draw.strokeStyle = paint;
      draw.fillStyle = paint;
      draw.lineWidth = 2;
      if (what === "held") draw.setLineDash([2, 3]);
      for (const [top, low] of rows) for (const [start, stop] of cols) {
        const box = [x + start * across, y + top * down, Math.max(2, (stop - start) * across), Math.max(2, (low - top) * down)];
        if (what !== "held") {
          draw.globalAlpha = what === "read" ? 0.28 : 0.62;
          draw.fillRect(...box);
          draw.globalAlpha = 1;
        }
        if (what !== "held" && what !== "read" && what !== "multiply") hatch(draw, box);
        if (box[2] > 4 && box[3] > 4) draw.strokeRect(box[0] + 1, box[1] + 1, box[2] - 2, box[3] - 2);
      }
      draw.restore();
    }

    // -- the timeline of all ranks
    frame(canvas) {
      const wide = canvas.clientWidth, each = Math.max(9, Math.min(30, Math.floor(430 / this.count)));
      const first = state.zoom === 1 ? 0 : Math.min(Math.max(0, state.t - ticks / state.zoom / 2), ticks - ticks / state.zoom);
      return { wide, each, left: 26, high: 20 + each * this.count, first, across: (wide - 30) / (ticks / state.zoom) };
    }

    drawTimeline(t) {
      const canvas = this.canvases[1], { wide, each, left, high, first, across } = this.frame(canvas);
      if (wide <= left) return;
      const key = [wide, state.rank, state.zoom, state.zoom > 1 && first, look.paper].join(), place = (tick) => left + (tick / this.scale - first) * across;
      if (this.past?.key !== key) {
        this.past = { key, canvas: document.createElement("canvas") };
        const draw = sized(this.past.canvas, wide, high);
        draw.font = "11px system-ui, sans-serif";
        this.ranks.forEach((bars, rank) => {
          const y = 18 + rank * each, half = Math.floor(each * 0.52);
          draw.fillStyle = rank === state.rank ? look.panel : look.paper;
          draw.fillRect(0, y, wide, each);
          draw.fillStyle = rank === state.rank ? look.ink : look.soft;
          if (each >= 11 || rank % 4 === 0) draw.fillText(rank, 2, y + each / 2 + 4);
          for (const bar of bars) {
            const [x, end] = [place(bar[START]), place(bar[STOP])];
            if (end < left || x > wide) continue;
            draw.fillStyle = look[bar[DOES]];
            const [from, to] = [Math.max(x, left), Math.max(end, x + 0.7)];
            draw.fillRect(from, y + (bar[COMPUTES] ? 1 : half + 1), to - from, bar[COMPUTES] ? half - 1 : each - half - 2);
            if (to - from > 4) { draw.fillStyle = look.paper; draw.fillRect(to - 0.6, y + 1, 0.6, each - 2); }
          }
        });
        draw.fillStyle = look.soft;
        draw.textAlign = "left";
        draw.fillText("rank", 0, 11);
        draw.textAlign = "center";
        const whole = this.timed ? longest : 100, [size, unit] = !this.timed ? [1, "%"] : whole >= 1 ? [1, "s"] : whole >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
        const step = steps(whole / size / state.zoom) * size, at = (value) => left + ((value / whole) * ticks - first) * across;
        for (let number = Math.ceil((first / ticks) * whole / step); at(number * step) < wide - 12; number++) {
          const x = at(number * step), text = String(Number(((number * step) / size).toPrecision(6)));
          if (x > left + 12) { draw.fillText(x > wide - 30 ? text : `${text} ${unit}`, x, 11); draw.fillRect(x, 14, 1, 4); }
        }
      }
      const draw = sized(canvas, wide, high), x = left + (state.t - first) * across;
      draw.drawImage(this.past.canvas, 0, 0, wide, high);
      draw.fillStyle = look.ink;
      draw.fillRect(x - 1, 14, 2, high);
      draw.beginPath();
      draw.moveTo(x - 6, 12);
      draw.lineTo(x + 6, 12);
      draw.lineTo(x, 20);
      draw.fill();
    }

    // -- bytes from rank to rank: as wide as all of them, filled as far as they have gone
    drawPairs(t) {
      const canvas = this.canvases[2], wide = Math.min(canvas.clientWidth, 352), edge = 22, cell = (wide - edge) / this.count, high = edge + cell * this.count;
      if (wide <= edge) return;
      const greatest = Math.max(...this.pairs.map((row) => Math.max(...row)));
      if (!greatest) { sized(canvas, wide, 2); $(".pair", this.element).textContent = "Nothing moves between ranks."; return; }
      const gone = this.gone ||= this.pairs.map(() => new Float64Array(this.count));
      for (const row of gone) row.fill(0);
      for (const bars of this.ranks) for (const bar of bars) if (bar[START] < t) {
        const share = bar[STOP] > t ? (t - bar[START]) / (bar[STOP] - bar[START]) : 1;
        for (const [source, target, count] of bar[MOVES]) gone[source][target] += share * count;
      }
      const draw = sized(canvas, wide, high);
      draw.font = "11px system-ui, sans-serif";
      draw.textAlign = "center";
      draw.fillStyle = look.soft;
      const step = Math.max(1, Math.ceil(18 / cell));
      for (let rank = 0; rank < this.count; rank += step) {
        draw.fillText(rank, edge + (rank + 0.5) * cell, 13);
        draw.fillText(rank, 9, edge + (rank + 0.5) * cell + 4);
      }
      this.pairs.forEach((row, source) => row.forEach((count, target) => {
        const box = [edge + target * cell, edge + source * cell, cell - 1, cell - 1], share = count ? gone[source][target] / count : 0;
        draw.fillStyle = look.panel;
        draw.fillRect(...box);
        if (!count) return;
        draw.fillStyle = look.multiply;
        draw.globalAlpha = 0.12 + 0.2 * (count / greatest);
        draw.fillRect(...box);
        draw.globalAlpha = 0.25 + 0.75 * (count / greatest);
        draw.fillRect(box[0], box[1] + box[3] * (1 - share), box[2], box[3] * share);
        draw.globalAlpha = 1;
      }));
      const total = sum(this.pairs.map((row) => sum([...row]))), sofar = sum(gone.map((row) => sum([...row])));
      const at = this.pair && `from ${this.pair[0]} to ${this.pair[1]}: ${bytes(gone[this.pair[0]][this.pair[1]])} of ${bytes(this.pairs[this.pair[0]][this.pair[1]])}`;
      $(".pair", this.element).textContent = `From rank (down) to rank (across), the stronger the colour the more, filled as far as they have gone. ${at || `So far ${bytes(sofar)} of ${bytes(total)}; most between two ranks ${bytes(greatest)}`}.`;
    }

    pointing() {
      const [, timeline, pairs] = this.canvases;
      const go = (event) => {
        const { each, left, first, across } = this.frame(timeline), box = timeline.getBoundingClientRect();
        const rank = Math.floor((event.clientY - box.top - 18) / each);
        if (event.type === "pointerdown" && state.rank >= 0 && rank >= 0 && rank < this.count) state.rank = rank;
        set(first + (event.clientX - box.left - left) / across);
      };
      timeline.addEventListener("pointerdown", (event) => { stop(); go(event); });
      timeline.addEventListener("pointermove", (event) => { if (event.buttons) go(event); });
      pairs.addEventListener("pointermove", (event) => {
        const box = pairs.getBoundingClientRect(), cell = (Math.min(box.width, 352) - 22) / this.count;
        const [source, target] = [event.clientY - box.top, event.clientX - box.left].map((each) => Math.floor((each - 22) / cell));
        this.pair = source >= 0 && target >= 0 && source < this.count && target < this.count ? [source, target] : null;
        this.drawPairs(this.local(state.t));
      });
      pairs.addEventListener("pointerleave", () => { this.pair = null; this.drawPairs(this.local(state.t)); });
      this.canvases[0].addEventListener("pointerdown", (event) => this.press(event));
      for (const [name, factor] of [["in", 2], ["out", 0.5]]) $(`.${name}`, this.element).addEventListener("click", () => zoom(factor));
      $(".everyone", this.element).addEventListener("toggle", () => this.show());
    }

    press(event) { // a tile: its owner is chosen
      const box = this.canvases[0].getBoundingClientRect(), [x, y] = [event.clientX - box.left, event.clientY - box.top];
      for (const matrix of this.matrices) this.tiles(matrix, this.boxes[matrix.name], (i, j, left, top, width, height) => {
        if (left <= x && x < left + width && top <= y && y < top + height) choose(matrix.owner(i, j, this.viewed(matrix)));
      });
    }
  }

  // -- drawing
  const steps = (most) => { const power = 10 ** Math.floor(Math.log10(most)); return [5, 2, 1, 0.5].map((each) => each * power).find((each) => most / each >= 3) || power / 2; };
  function sized(canvas, wide, high) { // a canvas as sharp as the screen; it is cleared
    const ratio = Math.min(3, devicePixelRatio || 1), [width, height] = [wide * ratio, high * ratio].map(Math.round);
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; canvas.style.height = `${high}px`; }
    const draw = canvas.getContext("2d");
    draw.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw.clearRect(0, 0, wide, high);
    return draw;
  }
  function write(draw, text, x, y) { // readable on any colour
    draw.strokeStyle = look.paper;
    draw.lineWidth = 3;
    draw.lineJoin = "round";
    draw.strokeText(text, x, y);
    draw.fillStyle = look.ink;
    draw.fillText(text, x, y);
  }
  function hatch(draw, [x, y, width, height]) {
    draw.save();
    draw.beginPath();
    draw.rect(x, y, width, height);
    draw.clip();
    draw.strokeStyle = look.paper;
    draw.globalAlpha = 0.55;
    draw.lineWidth = 1;
    draw.beginPath();
    for (let at = -height; at < width; at += 6) { draw.moveTo(x + at, y + height); draw.lineTo(x + at + height, y); }
    draw.stroke();
    draw.restore();
  }

  // -- time, rank, zoom
  const views = [...document.querySelectorAll("article")].map((element) => new View(element, cases[Number(element.dataset.case)]));
  const when = (view, t) => (view.timed ? seconds((t / ticks) * longest) : `${((100 * t) / ticks).toFixed(1)} %`);
  let asked = false;
  function redraw() { // once a frame
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      show();
    });
  }
  function show() {
    for (const view of views) view.show();
    const text = when(views[0], state.t);
    $("#time").value = Math.round(state.t);
    $("#time").setAttribute("aria-valuetext", text);
    $("#clock").textContent = `${text}${views[0].timed ? `, ${((100 * state.t) / ticks).toFixed(1)} %` : ""}`;
    $("#rank").value = state.rank;
  }
  function set(t) { state.t = Math.min(ticks, Math.max(0, t)); redraw(); }
  function choose(rank) { state.rank = Math.min(most - 1, Math.max(-1, rank)); redraw(); }
  function zoom(factor) { state.zoom = Math.min(256, Math.max(1, state.zoom * factor)); redraw(); }
  function leap(way) { // to where something of the chosen rank, or of any, starts or ends
    const edges = views.flatMap((view) => (state.rank >= 0 && state.rank < view.count ? view.edges[state.rank] : view.all).map((each) => Math.ceil(each / view.scale)));
    const ahead = edges.filter((each) => (way > 0 ? each > state.t : each < state.t));
    set(ahead.length ? ahead.reduce((one, other) => (way > 0 ? Math.min(one, other) : Math.max(one, other))) : way > 0 ? ticks : 0);
  }
  let last = 0;
  const announce = (how) => { for (const each of document.querySelectorAll(".status")) each.setAttribute("aria-live", how); }; // not at every frame
  function stop() { if (state.playing) announce("polite"); state.playing = false; $("#play").textContent = "▶"; }
  function play() {
    if (state.playing) return stop();
    if (state.t >= ticks) state.t = 0;
    state.playing = true;
    announce("off");
    $("#play").textContent = "||";
    last = performance.now();
    requestAnimationFrame(function step(now) {
      if (!state.playing) return;
      state.t = Math.min(ticks, state.t + ((now - last) / 15000) * (ticks / state.zoom)); // a run takes 15 s
      last = now;
      show();
      if (state.t >= ticks) return stop();
      requestAnimationFrame(step);
    });
  }
  $("#rank").append(new Option("all", -1), ...Array.from({ length: most }, (_, rank) => new Option(rank, rank)));
  $("#rank").addEventListener("change", (event) => choose(Number(event.target.value)));
  $("#time").addEventListener("input", (event) => { stop(); set(Number(event.target.value)); });
  $("#play").addEventListener("click", play);
  $("#before").addEventListener("click", () => { stop(); leap(-1); });
  $("#after").addEventListener("click", () => { stop(); leap(1); });
  const themed = (dark) => { document.documentElement.dataset.theme = dark ? "dark" : "light"; readColours(); redraw(); };
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", () => themed(system.matches));
  $("#theme").addEventListener("click", () => themed(!look.dark));
  const keys = {
    ArrowLeft: (event) => (event.shiftKey ? set(state.t - ticks / 100) : leap(-1)), ArrowRight: (event) => (event.shiftKey ? set(state.t + ticks / 100) : leap(1)),
    ArrowUp: () => choose(state.rank - 1), ArrowDown: () => choose(state.rank + 1), Home: () => set(0), End: () => set(ticks), " ": play, "+": () => zoom(2), "-": () => zoom(0.5),
  };
  addEventListener("keydown", (event) => {
    const act = keys[event.key], tag = event.target.tagName;
    if (!act || event.ctrlKey || event.metaKey || event.altKey || tag === "SELECT" || (event.key === " " && (tag === "BUTTON" || tag === "SUMMARY"))) return;
    event.preventDefault();
    if (event.key !== " ") stop();
    act(event);
  });
  const sizes = new ResizeObserver(redraw);
  for (const canvas of document.querySelectorAll("canvas")) sizes.observe(canvas.parentElement);
  for (const button of document.querySelectorAll(".copy")) button.addEventListener("click", () => { getSelection().selectAllChildren(button.previousElementSibling); button.textContent = document.execCommand("copy") ? "copied" : "selected"; });
  themed(system.matches);
  // begins where there is most to see of the rank, about a third of the way through
  const [view] = views, seen = view.edges[Math.max(0, state.rank)];
  let best = -9;
  seen.slice(1).forEach((end, at) => {
    const t = (seen[at] + end) / 2, verbs = new Set(view.active(Math.max(0, state.rank), t).map((bar) => bar[DOES]).filter((verb) => verb !== "wait"));
    const value = verbs.size - Math.abs(t / ticks - 0.35) - (end - seen[at] < ticks / 500 ? 1 : 0);
    if (verbs.size && value > best) { best = value; state.t = Math.round(t / view.scale); }
  });
  show();
  document.documentElement.dataset.drawn = Math.round(performance.now());
})();
