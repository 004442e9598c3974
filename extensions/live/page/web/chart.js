// Strip charts on canvas. One loop draws all of them; a chart draws when it is seen and a column of its
// pixels has passed, or something else in it has changed.

// A View is the span of time that every chart shows. Its end is null while it is live.
export class View {
  constructor(clock, span) {
    this.clock = clock;
    this.span = span; // ms
    this.end = null;
    this.hover = NaN; // time below the pointer
    this.version = 0; // grows when charts have to be drawn
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
  constructor() {
    this.charts = new Set();
    this.seen = new IntersectionObserver((entries) => {
      for (const e of entries) e.target.chart.visible = e.isIntersecting;
    }, { rootMargin: '100px' });
    const frame = () => {
      for (const c of this.charts) if (c.visible) c.draw();
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  add(chart) {
    chart.canvas.chart = chart;
    this.charts.add(chart);
    this.seen.observe(chart.canvas);
  }

  remove(chart) {
    this.charts.delete(chart);
    this.seen.unobserve(chart.canvas);
  }
}

// colours are those of the style sheet, as canvas wants them.
const names = ['blue', 'orange', 'teal', 'purple', 'red', 'grid', 'muted', 'panel', ...[0, 1, 2, 3, 4, 5, 6, 7].map((i) => `line-${i}`)];
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

// HEAD is the height of the line of text above each lane, in CSS pixels.
export const HEAD = 15;

// A StripChart has lanes one below the other: {height, max, lines}. max is a number or a
// function; without, it follows the values. A line is {series, colour, style}: style is
// area, line, thin, or mark, a level drawn dotted, the newest value; series is a function that
// returns the Series or null.
export class StripChart {
  constructor(canvas, { view, lanes, events = () => [], gap = () => 3000 }) {
    this.canvas = canvas;
    this.context = canvas.getContext('2d');
    this.view = view;
    this.lanes = lanes;
    this.lines = lanes.flatMap((lane) => lane.lines);
    this.events = events;
    this.gap = gap; // ms between samples from which on the line is broken
    this.visible = false;
    this.draws = 0;
  }

  // time is that of a position in CSS pixels.
  time(x) { return this.view.right() - this.view.span * (1 - x / this.canvas.clientWidth); }

  draw() {
    const { canvas, view } = this, events = this.events(), ratio = this.ratio = window.devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
    if (!width || !height) return;
    const perPixel = view.span / width, right = Math.floor(view.right() / perPixel);
    for (const line of this.lines) line.ring = line.series()?.ring;
    const key = [view.version, right, width, height, events.length, ...this.lines.map(({ ring, style }) => ring && `${ring.epoch} ${style === 'mark' ? ring.newest : ring.length > 0}`)].join();
    if (key === this.drawn) return;
    this.drawn = key;
    this.draws++;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    // Columns are counted from the beginning of time, so that lines do not flicker as time passes.
    this.#paint({ width, base: right - width, perPixel, first: (right - width) * perPixel, last: right * perPixel }, events);
  }

  // top is the upper end of a lane's scale: given, or by the highest value in view.
  #top(lane, { first, last }) {
    const fixed = typeof lane.max === 'function' ? lane.max() : lane.max;
    return fixed > 0 ? fixed : nice(1.05 * Math.max(0, ...lane.lines.map(({ ring }) => ring?.stats(first, last)?.max ?? 0)));
  }

  #paint(span, events) {
    const c = this.context, { ratio } = this, { width, base, perPixel, first, last } = span, every = ticks(this.view.span, width / ratio);
    c.clearRect(0, 0, width, this.canvas.height);
    let top = 0;
    for (const lane of this.lanes) {
      const height = Math.round(lane.height * ratio);
      top += Math.round(HEAD * ratio);
      lane.top = this.#top(lane, span);
      c.fillStyle = colours.grid;
      for (let t = Math.ceil(first / every) * every; t <= last; t += every) c.fillRect(Math.floor(t / perPixel) - base, top, 1, height);
      for (const share of [0, 0.5, 1]) c.fillRect(0, top + Math.round((height - 1) * share), width, 1);
      const bottom = top + height - ratio, scale = (height - 2 * ratio) / lane.top;
      for (const line of lane.lines) if (line.ring?.length) this.#line(line, span, bottom, (v) => bottom - Math.min(v, lane.top * 1.02) * scale);
      top += height;
    }
    for (const e of events) {
      if (e.t < first - 20 * perPixel || e.t > last + 20 * perPixel) continue;
      const at = Math.floor(e.t / perPixel) - base;
      c.fillStyle = e.bad ? colours.red : colours.muted;
      c.fillRect(at, 0, Math.max(1, Math.round(ratio)), e.bad ? top : Math.round((HEAD + 4) * ratio));
      mark(c, at + 0.5, 5 * ratio, 4 * ratio, e.bad);
    }
  }

  #line({ ring, series, colour, style }, { width, base, perPixel, first, last }, bottom, height) {
    const c = this.context, { ratio } = this, gap = this.gap(series());
    c.fillStyle = c.strokeStyle = colours[colour];
    if (style === 'mark') {
      const y = Math.round(height(ring.newest)), dot = Math.round(4 * ratio);
      if (y === y) for (let x = -(base % (2 * dot)); x < width; x += 2 * dot) c.fillRect(x, y, dot, Math.max(1, Math.round(ratio)));
      return;
    }
    c.lineJoin = 'round';
    c.lineWidth = (style === 'thin' ? 1 : 1.5) * ratio;
    let from = NaN, x = NaN, column = NaN, low = 0, high = 0, before = NaN;
    const end = () => { // of an unbroken line
      if (from !== from) return;
      c.stroke();
      if (style === 'area') {
        c.lineTo(x, bottom);
        c.lineTo(from, bottom);
        c.globalAlpha = 0.16;
        c.fill();
        c.globalAlpha = 1;
      }
      from = NaN;
    };
    for (let i = Math.max(0, ring.from(first) - 1); i < ring.length && before !== Infinity; i++) {
      const t = ring.time(i), v = ring.value(i);
      if (v !== v || t - before > gap) end();
      if (v !== v) continue;
      const y = height(v);
      x = t / perPixel - base;
      if (from !== from) {
        from = x;
        c.beginPath();
        c.moveTo(x, y);
        c.lineTo(x + ratio, y); // one sample alone is seen, too
      }
      if (Math.floor(x) !== column || y < low || y > high) c.lineTo(x, y); // else it is where the line is
      [column, low, high] = Math.floor(x) === column ? [column, Math.min(low, y), Math.max(high, y)] : [Math.floor(x), y, y];
      before = t > last ? Infinity : t;
    }
    end();
  }
}

// mark draws the sign of an event: a filled diamond if it is bad, else a ring.
function mark(c, x, y, r, bad) {
  c.beginPath();
  if (bad) {
    c.moveTo(x, y - r);
    c.lineTo(x + r, y);
    c.lineTo(x, y + r);
    c.lineTo(x - r, y);
    c.fill();
    return;
  }
  c.arc(x, y, r * 0.7, 0, 2 * Math.PI);
  c.lineWidth = Math.max(1, r / 3);
  c.strokeStyle = c.fillStyle;
  c.fillStyle = colours.panel;
  c.fill();
  c.stroke();
}
