"use strict";
// Sorting of tables, and the player: one time for scene, plots and time line.

const COLOURS = ["#0072b2", "#d55e00"];
const $ = (id) => document.getElementById(id);

// Tables

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const rising = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      const value = (row) => row.cells[column].textContent.trim();
      rows.sort((a, b) => (rising ? 1 : -1) * compared(value(a), value(b)));
      rows.forEach((row) => table.tBodies[0].appendChild(row));
    });
  });
}

// Numbers come before words; one may have its spread: 1.01 ± 0.02.
function compared(a, b) {
  const number = (text) => (text === "" ? NaN : Number(text.split(" ± ")[0]));
  const x = number(a), y = number(b);
  if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
  return Number.isNaN(x) ? a.localeCompare(b) : x - y;
}

document.querySelectorAll("table.sortable").forEach(sortable);

// Data: little-endian 32-bit floats, compressed

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Float32Array(await new Response(stream).arrayBuffer());
}

async function loaded(run) {
  if (!run.numbers) {
    const all = await unpacked(run.data);
    let first = 0;
    const take = (count) => all.subarray(first, (first += count));
    const frames = run.frames;
    run.numbers = {
      t: take(frames),
      lines: run.lines.map(([points, size]) => ({ points, size, at: take(frames * points * size) })),
      series: run.series.map((name) => ({ name, at: take(frames) })),
    };
  }
  return run.numbers;
}

// The player

class Player {
  constructor(motions) {
    this.motions = motions;
    this.scene = $("scene");
    this.pen = this.scene.getContext("2d");
    this.turn = [0.6, 0.35]; // of the view in space: about the vertical, and down
    this.time = 0;
    this.playing = false;
    this.plots = [];
    this.shown = [];
    fill($("motion"), motions.map((x) => x.title));
    $("motion").addEventListener("change", () => this.choose());
    ["first", "second"].forEach((id) => $(id).addEventListener("change", () => this.show()));
    $("play").addEventListener("click", () => this.toggle());
    $("time").addEventListener("input", () => this.go(Number($("time").value)));
    $("back").addEventListener("click", () => this.jump(-1));
    $("next").addEventListener("click", () => this.jump(1));
    this.scene.addEventListener("keydown", (event) => this.turned(event));
    this.scene.addEventListener("pointermove", (event) => this.dragged(event));
    document.addEventListener("keydown", (event) => this.key(event));
    window.addEventListener("resize", () => this.resized());
    this.choose();
  }

  choose() {
    this.motion = this.motions[$("motion").selectedIndex];
    const labels = this.motion.runs.map((run) => run.label);
    fill($("first"), labels);
    fill($("second"), ["nothing", ...labels]);
    $("second").selectedIndex = labels.length > 1 ? 2 : 0; // alone, or the first two
    this.time = 0;
    return this.show();
  }

  async show() {
    const second = $("second").selectedIndex - 1;
    const runs = [this.motion.runs[$("first").selectedIndex]];
    if (second >= 0) runs.push(this.motion.runs[second]);
    const numbers = await Promise.all(runs.map(loaded));
    this.shown = runs.map((run, k) => ({ run, ...numbers[k] }));
    this.end = Math.max(...this.shown.map((x) => x.t[x.t.length - 1]));
    Object.assign($("time"), { min: 0, max: this.end, step: this.end / 2000 });
    this.bounds = boundsOf(this.shown);
    this.marks();
    this.layout();
    this.plot();
    this.go(Math.min(this.time, this.end));
  }

  // Time

  toggle() {
    this.playing = !this.playing;
    $("play").textContent = this.playing ? "Pause" : "Play";
    if (this.playing && this.time >= this.end) this.time = 0;
    this.last = performance.now();
    if (this.playing) requestAnimationFrame((now) => this.tick(now));
  }

  tick(now) {
    if (!this.playing) return;
    const speed = Number($("speed").value);
    this.go(Math.min(this.time + ((now - this.last) / 1000) * speed, this.end));
    this.last = now;
    if (this.time >= this.end) this.toggle();
    else requestAnimationFrame((later) => this.tick(later));
  }

  go(time) {
    this.time = time;
    $("time").value = time;
    $("now").textContent = `t = ${time.toFixed(3)} s`;
    this.draw();
    this.plots.forEach((plot) => {
      plot.setCursor({ left: plot.valToPos(time, "x"), top: 10 }, false);
    });
    this.tell();
  }

  events() {
    return this.shown.flatMap(({ run }, k) => run.events.map((event) => ({ ...event, k })))
      .sort((a, b) => a.t - b.t);
  }

  jump(way) {
    const times = this.events().map((event) => event.t);
    const tiny = 1e-6 * this.end;
    const ahead = way > 0
      ? times.find((t) => t > this.time + tiny)
      : times.reverse().find((t) => t < this.time - tiny);
    this.go(ahead ?? (way > 0 ? this.end : 0));
  }

  tell() {
    const before = this.events().filter((event) => event.t <= this.time + 1e-6 * this.end);
    const newest = [1, 0].map((k) => before.filter((event) => event.k === k).pop()).filter(Boolean);
    $("event").innerHTML = "";
    newest.reverse().forEach((event) => {
      const line = document.createElement("div");
      line.className = event.k ? "two" : "one";
      line.textContent = [`t = ${event.t.toPrecision(6)} s`, ...said(event)].join(", ");
      $("event").appendChild(line);
    });
  }

  key(event) {
    const busy = ["BUTTON", "SELECT", "SUMMARY", "A"].includes(event.target.tagName);
    if (event.code === "Space" && !busy) {
      event.preventDefault();
      this.toggle();
    }
  }

  marks() {
    $("marks").innerHTML = "";
    this.events().forEach((event) => {
      const mark = document.createElement("button");
      mark.style.left = `${(100 * event.t) / this.end}%`;
      mark.className = event.k ? "two" : "one";
      mark.setAttribute("aria-label", `event at ${event.t.toPrecision(4)} s`);
      mark.addEventListener("click", () => this.go(event.t));
      $("marks").appendChild(mark);
    });
  }

  // Scene

  layout() {
    const scale = window.devicePixelRatio || 1;
    const { width, height } = this.scene.getBoundingClientRect();
    Object.assign(this.scene, { width: width * scale, height: height * scale });
    this.pen.setTransform(scale, 0, 0, scale, 0, 0);
    this.size = [width, height];
  }

  project(x, y, z) {
    if (z === undefined) return [x, y];
    const [c, s, d, e] = [Math.cos(this.turn[0]), Math.sin(this.turn[0]), Math.cos(this.turn[1]), Math.sin(this.turn[1])];
    return [c * x + s * y, d * z + e * (c * y - s * x)];
  }

  draw() {
    if (!this.bounds) return;
    const pen = this.pen, [width, height] = this.size;
    const { middle, radius } = this.bounds;
    const scale = (0.46 * Math.min(width, height)) / radius;
    const centre = this.project(...middle);
    pen.clearRect(0, 0, width, height);
    pen.lineJoin = pen.lineCap = "round";
    this.shown.forEach(({ t, lines }, k) => {
      const [i, part] = placeOf(t, this.time);
      lines.forEach(({ points, size, at }) => {
        pen.beginPath();
        for (let j = 0; j < points; j++) {
          const point = [];
          for (let c = 0; c < size; c++) {
            const a = at[(i * points + j) * size + c];
            const b = at[(Math.min(i + 1, t.length - 1) * points + j) * size + c];
            point.push(a + part * (b - a));
          }
          const [x, y] = this.project(...point);
          const px = width / 2 + scale * (x - centre[0]), py = height / 2 - scale * (y - centre[1]);
          if (points === 1) pen.arc(px, py, 4, 0, 7);
          else if (j) pen.lineTo(px, py);
          else pen.moveTo(px, py);
        }
        pen.strokeStyle = pen.fillStyle = COLOURS[k];
        pen.lineWidth = k ? 1.6 : 2.6;
        pen.setLineDash(k ? [7, 4] : []);
        if (points === 1) pen.fill();
        else pen.stroke();
      });
    });
  }

  turned(event) {
    const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
    if (!step) return;
    event.preventDefault();
    this.turn = [this.turn[0] + step[0], this.turn[1] + step[1]];
    this.draw();
  }

  dragged(event) {
    if (!event.buttons) return;
    this.turn = [this.turn[0] + 0.01 * event.movementX, this.turn[1] + 0.01 * event.movementY];
    this.draw();
  }

  resized() {
    this.layout();
    this.plots.forEach((plot) => plot.setSize(this.room()));
    this.go(this.time);
  }

  // Plots

  room() {
    return { width: Math.max(240, $("plots").clientWidth - 2), height: 140 };
  }

  plot() {
    this.plots.forEach((plot) => plot.destroy());
    $("plots").innerHTML = "";
    const names = this.shown[0].series.map((x) => x.name);
    this.plots = names.slice(0, 3).map((name) => this.curve(name));
  }

  curve(name) {
    const box = document.createElement("div");
    box.className = "plot";
    $("plots").appendChild(box);
    const tables = this.shown.map(({ t, series }) => [[...t], [...series.find((x) => x.name === name).at]]);
    const data = tables.length > 1 ? uPlot.join(tables) : tables[0];
    const lines = this.shown.map(({ run }, k) => ({
      label: run.label, stroke: COLOURS[k], width: 1.5, dash: k ? [7, 4] : [], spanGaps: true,
    }));
    const options = {
      ...this.room(), title: name,
      cursor: { y: false, drag: { x: false, y: false } }, legend: { show: false },
      scales: { x: { time: false } }, axes: [{ size: 28 }, { size: 64 }],
      series: [{ label: "t [s]" }, ...lines],
    };
    const plot = new uPlot(options, data, box);
    plot.over.addEventListener("click", (event) => this.go(plot.posToVal(event.offsetX, "x")));
    return plot;
  }
}

// What is known of an event; archived data may hold less than a run.
function said(event) {
  const words = [
    event.mode && `mode ${event.mode}`, event.before && `v- = (${event.before})`,
    event.after && `v+ = (${event.after})`, event.impulse && `Lam = (${event.impulse})`,
    event.energy,
  ];
  return words.filter(Boolean);
}

function fill(select, labels) {
  select.innerHTML = "";
  labels.forEach((label) => select.appendChild(new Option(label)));
}

function placeOf(t, time) {
  let low = 0, high = t.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (t[middle] <= time) low = middle;
    else high = middle;
  }
  const gap = t[high] - t[low];
  return [low, gap > 0 ? Math.min(Math.max((time - t[low]) / gap, 0), 1) : 0];
}

function boundsOf(shown) {
  const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
  let size = 2;
  shown.forEach(({ lines }) => lines.forEach((line) => {
    size = line.size;
    line.at.forEach((x, k) => {
      const c = k % line.size;
      if (x < low[c]) low[c] = x;
      if (x > high[c]) high[c] = x;
    });
  }));
  const middle = low.slice(0, size).map((x, c) => (x + high[c]) / 2);
  const widths = low.slice(0, size).map((x, c) => (high[c] - x) / 2);
  const radius = size === 2 ? Math.max(...widths) : Math.hypot(...widths);
  return { middle, radius: radius || 1 };
}

const held = $("motions");
if (held) window.player = new Player(JSON.parse(held.textContent));
