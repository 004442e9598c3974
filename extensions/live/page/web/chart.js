// Strip charts as SVG with their overlays: scales, and time and values at the pointer.

import { h, put, show } from './dom.js';
import { clock, reading } from './fields.js';

// A View is the time span shown by every chart. Its end is null while it is live.
export class View {
  constructor(clock, span) {
    this.clock = clock;
    this.span = span; // ms
    this.end = null;
    this.hover = NaN; // time at the pointer
    this.changed = () => {};
  }

  right() { return this.end ?? this.clock.now(); }

  set(span, end = this.end) {
    this.span = Math.min(Math.max(span, 2000), 15 * 60 * 1000);
    this.end = end;
    this.changed();
  }
}

// ticks returns the distance of vertical lines in ms, about one per 80 pixels.
export function ticks(span, width) {
  const wanted = span * 80 / Math.max(width, 80);
  return [100, 200, 500, 1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000].find((t) => t >= wanted) || 600000;
}

// nice returns the next round number for the end of a scale.
export function nice(v) {
  if (!(v > 0)) return 1;
  const p = 10 ** Math.floor(Math.log10(v));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((m) => m * p).find((m) => m >= v * 0.9999);
}

const HEAD = 15; // height of the line of text above each lane, in CSS pixels

// Charts outside the window are not drawn.
const seen = new IntersectionObserver((entries) => {
  for (const e of entries) e.target.chart.visible = e.isIntersecting;
}, { rootMargin: '100px' });

// A Chart has lanes, one below the other: {label, unit, height, max, text, lines}. max is a number or a function; without
// max, the values set the scale. A line is {name, series, colour, style}. style is area, line, thin, or mark, which draws
// the newest value as a dotted level. series is a function that returns the Series or null.
export class Chart {
  constructor(app, { lanes, events = () => [], name }) {
    Object.assign(this, { app, lanes, events, name, visible: false });
    this.grid = h('path', { class: 'grid' });
    this.marks = [h('path', { class: 'event' }), h('path', { class: 'event bad' })];
    this.picture = h('svg', { role: 'img', 'aria-label': name }, this.grid);
    this.cross = h('div', { class: 'cross', hidden: true });
    this.select = h('div', { class: 'select', hidden: true });
    this.tip = h('div', { class: 'tip', hidden: true });
    this.scales = lanes.map(() => h('span', { class: 'scale' }));
    this.axis = [h('span'), h('span'), h('span')];
    let top = 0;
    lanes.forEach((lane, i) => {
      this.scales[i].style.top = `${top}px`;
      top += HEAD + lane.height;
      for (const line of lane.lines) {
        line.area = h('path', { class: 'fill' });
        line.path = h('path', { class: line.style });
        for (const e of [line.area, line.path]) e.style.setProperty('--line', `var(--${line.colour})`);
        this.picture.append(line.area, line.path);
      }
    });
    this.picture.append(...this.marks);
    this.picture.style.height = `${top}px`;
    this.plot = h('div', { class: 'plot' }, this.picture, this.scales, this.cross, this.select, this.tip);
    this.element = h('div', { class: 'chart' }, this.plot, h('div', { class: 'axis', 'aria-hidden': 'true' }, this.axis));
    this.picture.chart = this;
    seen.observe(this.picture);
    this.#pointer();
  }

  close() { seen.unobserve(this.picture); }

  // update draws the chart and its scales, a few times a second.
  update() {
    const { view } = this.app, right = view.right(), from = right - view.span, width = this.picture.clientWidth, perPixel = view.span / width;
    if (!width) return;
    const every = ticks(view.span, width), x = (t) => ((t - from) / perPixel).toFixed(1);
    let bottom = 0, grid = '';
    this.lanes.forEach((lane, i) => {
      const top = bottom + HEAD, fixed = typeof lane.max === 'function' ? lane.max() : lane.max;
      bottom = top + lane.height;
      lane.top = fixed > 0 ? fixed : nice(1.05 * Math.max(0, ...lane.lines.map((l) => l.series()?.ring.max(from, right) ?? 0)));
      for (let t = Math.ceil(from / every) * every; t <= right; t += every) grid += `M${x(t)} ${top}v${lane.height}`;
      for (const share of [0, 0.5, 1]) grid += `M0 ${top + share * lane.height}h${width}`;
      const y = (v) => bottom - Math.min(v / lane.top, 1.02) * lane.height;
      for (const line of lane.lines) this.#line(line, { from, right, width, perPixel, bottom, x, y });
      put(this.scales[i], [lane.label, lane.text?.() || (lane.unit ? reading(lane.top, lane.unit) : '')].filter(Boolean).join(' · '));
    });
    this.grid.setAttribute('d', grid);
    const events = this.events().filter((e) => e.t > from - 20 * perPixel && e.t < right + 20 * perPixel);
    const marks = (bad, sign) => events.filter((e) => !!e.bad === bad).map((e) => `M${x(e.t)} ${sign}`).join('');
    this.marks[0].setAttribute('d', marks(false, `${HEAD + 4}V8a3 3 0 1 1 .1 0`));
    this.marks[1].setAttribute('d', marks(true, `${bottom}V9l-4 -4l4 -4l4 4l-4 4`));
    this.axis.forEach((e, i) => put(e, clock(right - view.span * (1 - i / 2), view.span < 20000)));
    this.point();
  }

  #line({ series, style, path, area }, { from, right, width, perPixel, bottom, x, y }) {
    const s = series(), { ring } = s || {}, gap = s ? this.app.model.gap(s) : 0;
    let lines = '', areas = '', points = '', before = NaN, column = NaN, low = 0, high = 0;
    const end = () => { // end of an unbroken line
      if (points) lines += `M${points}`;
      if (points) areas += `M${points.split(' ', 1)} ${bottom}L${points}V${bottom}Z`;
      points = '';
    };
    if (style === 'mark' && ring?.newest >= 0) lines = `M0 ${y(ring.newest)}h${width}`;
    for (let i = style === 'mark' || !ring ? Infinity : Math.max(0, ring.from(from) - 1); i < ring?.length && !(before > right); i++) {
      const t = ring.time(i), v = ring.value(i);
      if (v !== v || t - before > gap) end();
      if (v !== v) continue;
      // Columns are aligned to absolute time, so that lines do not flicker as time passes.
      const height = y(v), c = Math.floor(t / perPixel);
      if (!points) points = `${x(t)} ${height.toFixed(1)}h1`; // makes a single sample visible
      if (c !== column || height < low || height > high) points += `L${x(t)} ${height.toFixed(1)}`; // otherwise the line continues
      [column, low, high] = c === column ? [column, Math.min(low, height), Math.max(high, height)] : [c, height, height];
      before = t;
    }
    end();
    path.setAttribute('d', lines);
    if (style === 'area') area.setAttribute('d', areas);
  }

  // point shows the pointer's time in all charts.
  point() {
    const { view } = this.app, x = (1 - (view.right() - view.hover) / view.span) * this.picture.clientWidth;
    show(this.cross, x >= 0);
    if (x >= 0) this.cross.style.transform = `translateX(${Math.round(x)}px)`;
  }

  #pointer() {
    const { app, plot } = this, { view } = app;
    let start = NaN;
    const position = (e) => Math.min(Math.max(e.clientX - plot.getBoundingClientRect().left, 0), plot.clientWidth);
    const time = (x) => view.right() - view.span * (1 - x / plot.clientWidth);
    const on = (names, f) => { for (const name of names.split(' ')) plot.addEventListener(name, f); };
    const leave = () => {
      view.hover = start = NaN;
      show(this.tip, false);
      show(this.select, false);
      app.hovered();
    };
    on('pointermove', (e) => {
      const x = position(e);
      view.hover = time(x);
      this.#tip(x);
      show(this.select, start === start);
      Object.assign(this.select.style, { left: `${Math.min(x, start)}px`, width: `${Math.abs(x - start)}px` });
      app.hovered();
    });
    on('pointerleave pointercancel', leave);
    on('pointerdown', (e) => {
      if (e.button || e.pointerType === 'touch') return;
      start = position(e);
      plot.setPointerCapture(e.pointerId);
    });
    on('pointerup', (e) => {
      const from = time(Math.min(position(e), start)), to = time(Math.max(position(e), start));
      if (Math.abs(position(e) - start) > 5) view.set(to - from, to);
      leave();
    });
    on('dblclick', () => app.live());
  }

  // tip shows the values at the pointer.
  #tip(x) {
    const { model, view: { hover, span } } = this.app, lines = [];
    for (const lane of this.lanes) {
      for (const line of lane.lines) {
        const s = line.series(), i = s ? s.ring.at(hover) : -1;
        if (i >= 0 && hover - s.ring.time(i) < model.gap(s)) lines.push(`${line.name} ${reading(s.ring.value(i), lane.unit)}`);
      }
    }
    for (const e of this.events()) if (Math.abs(e.t - hover) < span / 100) lines.push(e.text);
    show(this.tip, true);
    put(this.tip, [clock(hover, true), ...lines].join('\n'));
    const width = this.plot.clientWidth, right = x > width / 2;
    Object.assign(this.tip.style, { left: right ? 'auto' : `${x + 10}px`, right: right ? `${width - x + 10}px` : 'auto' });
  }
}
