// Strip charts on canvas. One loop draws all of them; a chart draws when it is seen and
// something in it has changed, and then only the columns of pixels that have.

// A View is the span of time that every chart shows. Its end is null while it is live.
export class View {
  constructor(clock, span) {
    this.clock = clock;
    this.span = span; // ms
    this.end = null;
    this.hover = NaN; // time below the pointer
    this.version = 0; // grows when charts have to be drawn whole
    this.changed = () => {};
  }

  right() { return this.end ?? this.clock.now(); }

  set(span, end = this.end) {
    this.span = Math.min(Math.max(span, 2000), 15 * 60 * 1000);
    this.end = end;
    this.redraw();
    this.changed();
  }

  redraw() { this.version++; }
}

// The Loop draws charts in one animation frame.
export class Loop {
  constructor(view) {
    this.view = view;
    this.charts = new Set();
    this.frames = 0; // drawn by the browser
    this.busy = 0; // ms spent in draw
    this.seen = new IntersectionObserver((entries) => {
      for (const e of entries) e.target.chart.visible = e.isIntersecting;
    }, { rootMargin: '100px' });
    this.sized = new ResizeObserver((entries) => {
      for (const e of entries) e.target.chart.resize();
    });
    const frame = () => {
      const start = performance.now();
      for (const c of this.charts) if (c.visible) c.draw();
      this.frames++;
      this.busy += performance.now() - start;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  add(chart) {
    chart.canvas.chart = chart;
    this.charts.add(chart);
    this.seen.observe(chart.canvas);
    this.sized.observe(chart.canvas);
  }

  remove(chart) {
    this.charts.delete(chart);
    this.seen.unobserve(chart.canvas);
    this.sized.unobserve(chart.canvas);
  }
}

// colours are those of the style sheet, as canvas wants them.
const names = ['blue', 'orange', 'teal', 'purple', 'red', 'grid', 'muted', 'text', 'panel', 'cold', 'hot',
  'line-0', 'line-1', 'line-2', 'line-3', 'line-4', 'line-5', 'line-6', 'line-7'];
export const colours = {};

// readColours reads them again, after the theme has changed.
export function readColours() {
  const probe = document.createElement('i');
  probe.hidden = true;
  document.body.append(probe);
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    colours[name] = getComputedStyle(probe).color;
  }
  probe.remove();
}

// ticks is the distance of vertical lines, in ms, for about one in 80 pixels.
export function ticks(span, width) {
  const wanted = span * 80 / Math.max(width, 80);
  return [100, 200, 500, 1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000].find((t) => t >= wanted) || 600000;
}

// nice is the next number that reads well at the end of a scale.
export function nice(v) {
  if (!(v > 0)) return 1;
  const p = 10 ** Math.floor(Math.log10(v));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((m) => m * p).find((m) => m >= v * 0.9999);
}

// Scratch for the points of one line: at most four for a column of pixels.
let xs = new Float64Array(4096), ys = new Float64Array(4096);

// HEAD is the height of the line of text above each lane, in CSS pixels.
export const HEAD = 15;

// A StripChart has lanes one below the other: {height, max, lines}. max is a number or a
// function; without, it follows the values. A line is {series, colour, style, mark}: style is
// area, line or thin; series is a function that returns the Series or null; a line with
// mark is a level drawn dotted, the newest value.
export class StripChart {
  constructor(canvas, { view, lanes, events = () => [], gap = () => 3000 }) {
    this.canvas = canvas;
    this.context = canvas.getContext('2d');
    this.view = view;
    this.lanes = lanes;
    this.events = events;
    this.gap = gap; // ms between samples from which on the line is broken
    this.visible = false;
    this.drawn = { version: -1, right: NaN };
    this.draws = 0;
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const width = Math.round(this.canvas.clientWidth * ratio), height = Math.round(this.canvas.clientHeight * ratio);
    if (width === this.canvas.width && height === this.canvas.height) return;
    this.canvas.width = width;
    this.canvas.height = height;
    this.ratio = ratio;
    this.drawn.version = -1;
  }

  // time is that of a position in CSS pixels.
  time(x) { return this.view.right() - this.view.span * (1 - x / this.canvas.clientWidth); }

  draw() {
    const { width, height } = this.canvas, { view, drawn } = this, events = this.events().length;
    if (!width || !height) return;
    const perPixel = view.span / width, right = Math.floor(view.right() / perPixel);
    let whole = drawn.version !== view.version || drawn.perPixel !== perPixel || drawn.events !== events || right < drawn.right;
    let from = drawn.right; // the first column to draw
    for (const lane of this.lanes) {
      for (const line of lane.lines) {
        const series = line.series(), ring = series ? series.ring : null, was = line.drawn || {};
        const level = line.mark && ring ? ring.value(ring.length - 1) : 0;
        if (was.ring !== ring || (ring && (was.epoch !== ring.epoch || was.time !== was.time)) || was.level !== level) whole = true;
        else if (ring && ring.last !== was.time) from = Math.min(from, Math.floor(was.time / perPixel) - 2);
        line.drawn = { series, ring, level, epoch: ring ? ring.epoch : 0, time: ring ? ring.last : NaN };
      }
      const top = this.#top(lane);
      if (top !== lane.top) whole = true;
      lane.top = top;
    }
    if (!whole && right === drawn.right && from === drawn.right) return;
    this.drawn = { version: view.version, perPixel, events, right };
    this.draws++;
    const x = whole ? 0 : Math.max(0, from - 1 - (right - width));
    const c = this.context;
    if (x > 0 && right > drawn.right) {
      c.globalCompositeOperation = 'copy';
      c.drawImage(this.canvas, drawn.right - right, 0);
      c.globalCompositeOperation = 'source-over';
    }
    c.save();
    c.beginPath();
    c.rect(x, 0, width - x, height);
    c.clip();
    c.clearRect(x, 0, width - x, height);
    this.#paint(right - width, x, perPixel);
    c.restore();
  }

  // top is the upper end of a lane's scale: given, or by the highest value in view.
  #top(lane) {
    const fixed = typeof lane.max === 'function' ? lane.max() : lane.max;
    if (fixed > 0) return fixed;
    const from = this.view.right() - this.view.span;
    let highest = 0;
    for (const line of lane.lines) {
      const { ring } = line.drawn;
      if (!ring || !ring.length) continue;
      const v = ring.value(ring.length - 1);
      // The span is searched again after a twentieth of it; until then only new samples count.
      const found = line.found;
      if (!found || found.ring !== ring || found.epoch !== ring.epoch || found.version !== this.view.version || Math.abs(from - found.from) > this.view.span / 20) {
        line.found = { ring, epoch: ring.epoch, version: this.view.version, from, max: ring.stats(from, from + this.view.span)?.max || 0 };
      }
      if (v > line.found.max) line.found.max = v;
      highest = Math.max(highest, line.found.max);
    }
    return nice(highest * 1.05);
  }

  // paint draws from column x on; base is the number of column 0.
  #paint(base, x, perPixel) {
    const c = this.context, { width } = this.canvas, ratio = this.ratio;
    const first = (base + x) * perPixel, last = (base + width) * perPixel;
    const every = ticks(this.view.span, width / ratio);
    let top = 0;
    for (const lane of this.lanes) {
      const height = Math.round(lane.height * ratio);
      top += Math.round(HEAD * ratio);
      c.fillStyle = colours.grid;
      for (let t = Math.ceil(first / every - 1) * every; t <= last; t += every) c.fillRect(Math.floor(t / perPixel) - base, top, 1, height);
      for (const share of [0, 0.5, 1]) c.fillRect(x, top + Math.round((height - 1) * share), width - x, 1);
      for (const line of lane.lines) this.#line(line, lane, base, first, last, perPixel, top, height, x);
      top += height;
    }
    for (const e of this.events()) {
      if (e.t < first - 20 * perPixel || e.t > last + 20 * perPixel) continue;
      const at = Math.floor(e.t / perPixel) - base;
      c.fillStyle = e.bad ? colours.red : colours.muted;
      c.fillRect(at, 0, Math.max(1, Math.round(ratio)), e.bad ? top : Math.round((HEAD + 4) * ratio));
      mark(c, at + 0.5, 5 * ratio, 4 * ratio, e.bad);
    }
  }

  #line(line, lane, base, first, last, perPixel, top, height, x) {
    const { ring, series } = line.drawn;
    if (!ring || !ring.length) return;
    const c = this.context, ratio = this.ratio, scale = (height - 2 * ratio) / lane.top, bottom = top + height - ratio;
    const colour = colours[line.colour] || line.colour;
    if (line.mark) {
      const v = ring.value(ring.length - 1);
      if (v !== v) return;
      c.fillStyle = colour;
      const y = Math.round(bottom - v * scale), dot = Math.round(4 * ratio);
      for (let column = Math.floor((base + x) / (2 * dot)) * 2 * dot; column < base + this.canvas.width; column += 2 * dot) c.fillRect(column - base, y, dot, Math.max(1, Math.round(ratio)));
      return;
    }
    const gap = this.gap(series);
    let n = 0, column = NaN, low = 0, high = 0, before = NaN;
    const flush = () => {
      if (n) this.#run(n, line, colour, bottom);
      n = 0;
      column = NaN;
    };
    for (let i = Math.max(0, ring.from(first) - 1); i < ring.length; i++) {
      const t = ring.time(i), v = ring.value(i);
      if (v !== v || t - before > gap) flush();
      if (v !== v) continue;
      before = t;
      const at = t / perPixel - base, y = bottom - Math.min(v, lane.top * 1.02) * scale;
      if (Math.floor(at) === column) { // further samples of this column: to its lowest, highest and newest
        if (y < low) low = y;
        if (y > high) high = y;
        if (n + 4 > xs.length) grow();
        xs[n - 3] = xs[n - 2] = xs[n - 1] = at;
        ys[n - 3] = low;
        ys[n - 2] = high;
        ys[n - 1] = y;
      } else {
        column = Math.floor(at);
        low = high = y;
        if (n + 4 > xs.length) grow();
        for (let k = 0; k < 4; k++) {
          xs[n] = at;
          ys[n++] = y;
        }
      }
      if (t > last) break;
    }
    flush();
  }

  // run draws one unbroken line of n points.
  #run(n, line, colour, bottom) {
    const c = this.context, ratio = this.ratio;
    c.beginPath();
    c.moveTo(xs[0], ys[0]);
    if (n <= 4) c.lineTo(xs[0] + ratio, ys[0]); // one sample alone
    for (let i = 1; i < n; i++) if (xs[i] !== xs[i - 1] || ys[i] !== ys[i - 1]) c.lineTo(xs[i], ys[i]);
    c.strokeStyle = colour;
    c.lineJoin = 'round';
    c.lineWidth = (line.style === 'thin' ? 1 : 1.5) * ratio;
    c.stroke();
    if (line.style !== 'area') return;
    c.lineTo(xs[n - 1], bottom);
    c.lineTo(xs[0], bottom);
    c.fillStyle = colour;
    c.globalAlpha = 0.16;
    c.fill();
    c.globalAlpha = 1;
  }
}

function grow() {
  const bigger = (a) => {
    const b = new Float64Array(a.length * 2);
    b.set(a);
    return b;
  };
  xs = bigger(xs);
  ys = bigger(ys);
}

// mark draws the sign of an event: a filled diamond if it is bad, else a ring.
export function mark(c, x, y, r, bad) {
  c.beginPath();
  if (bad) {
    c.moveTo(x, y - r);
    c.lineTo(x + r, y);
    c.lineTo(x, y + r);
    c.lineTo(x - r, y);
    c.closePath();
    c.fill();
  } else {
    c.arc(x, y, r * 0.7, 0, 2 * Math.PI);
    c.lineWidth = Math.max(1, r / 3);
    c.strokeStyle = c.fillStyle;
    c.fillStyle = colours.panel;
    c.fill();
    c.stroke();
  }
}
