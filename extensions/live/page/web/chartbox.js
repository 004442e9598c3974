// A chart with what lies over it: scales, the time below the pointer, the values there.

import { HEAD, StripChart } from './chart.js';
import { h, put, show } from './dom.js';
import { amount, clock, number } from './fields.js';

const decimals = { '%': 0, W: 0, '°C': 0, MHz: 0, GiB: 1 };

// reading writes a value in the unit of a role.
export const reading = (v, unit) => v !== v ? '–' : unit in decimals ? `${number(v, decimals[unit])} ${unit}` : amount(v, unit);

// A ChartBox is a StripChart with its overlays. A lane also has a label and a unit, and may
// have a text of what its upper end is; a line has a name.
export class ChartBox {
  constructor(app, { lanes, events, gap, name }) {
    this.app = app;
    this.lanes = lanes;
    this.name = name; // for those who cannot see it
    this.canvas = h('canvas', { role: 'img', 'aria-label': name });
    this.cross = h('div', { class: 'cross', hidden: true });
    this.select = h('div', { class: 'select', hidden: true });
    this.tip = h('div', { class: 'tip', hidden: true });
    this.scales = lanes.map(() => h('span', { class: 'scale' }));
    this.axis = [h('span'), h('span'), h('span')];
    this.plot = h('div', { class: 'plot' }, this.canvas, this.scales, this.cross, this.select, this.tip);
    this.element = h('div', { class: 'chart' }, this.plot, h('div', { class: 'axis', 'aria-hidden': 'true' }, this.axis));
    let top = 0;
    lanes.forEach((lane, i) => {
      this.scales[i].style.top = `${top}px`;
      top += HEAD + lane.height;
    });
    this.canvas.style.height = `${top}px`;
    this.chart = new StripChart(this.canvas, { view: app.view, lanes, events, gap });
    app.loop.add(this.chart);
    this.#pointer();
  }

  close() { this.app.loop.remove(this.chart); }

  // update writes scales, axis and overlays. It is called a few times a second.
  update() {
    const { view } = this.app, right = view.right();
    this.lanes.forEach((lane, i) => put(this.scales[i], [lane.label, lane.text?.() || (lane.unit && lane.top ? reading(lane.top, lane.unit) : '')].filter(Boolean).join(' · ')));
    this.axis.forEach((e, i) => put(e, clock(right - view.span * (1 - i / 2), view.span < 20000)));
    const { hover } = view, x = (1 - (right - hover) / view.span) * this.canvas.clientWidth;
    show(this.cross, x >= 0);
    if (x >= 0) this.cross.style.transform = `translateX(${Math.round(x)}px)`;
  }

  // describe gives the chart a text that says what can be seen in it.
  describe() {
    const { view } = this.app, parts = [];
    for (const lane of this.lanes) {
      for (const line of lane.lines) {
        const stats = line.style === 'mark' ? null : line.series()?.ring.stats(view.right() - view.span, view.right());
        if (stats) parts.push(`${line.name} ${statsText(stats, lane.unit)}`);
      }
    }
    this.canvas.setAttribute('aria-label', `${this.name}, last ${Math.round(view.span / 1000)} seconds: ${parts.join('; ') || 'no samples'}`);
  }

  #pointer() {
    const { app, plot, chart } = this, { view } = app;
    let start = NaN;
    const position = (e) => Math.min(Math.max(e.clientX - plot.getBoundingClientRect().left, 0), this.canvas.clientWidth);
    const on = (names, f) => { for (const name of names.split(' ')) plot.addEventListener(name, f); };
    const leave = () => {
      view.hover = start = NaN;
      show(this.tip, false);
      show(this.select, false);
      app.hovered();
    };
    on('pointermove', (e) => {
      const x = position(e);
      view.hover = chart.time(x);
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
      const from = chart.time(Math.min(position(e), start)), to = chart.time(Math.max(position(e), start));
      if (Math.abs(position(e) - start) > 5) view.set(to - from, to);
      leave();
    });
    on('dblclick', () => app.live());
  }

  // tip shows the values at the pointer.
  #tip(x) {
    const { hover, span } = this.app.view, lines = [];
    for (const lane of this.lanes) {
      for (const line of lane.lines) {
        const s = line.series(), i = s ? s.ring.at(hover) : -1;
        if (i >= 0 && hover - s.ring.time(i) < this.chart.gap(s)) lines.push(`${line.name} ${reading(s.ring.value(i), lane.unit)}`);
      }
    }
    for (const e of this.chart.events()) if (Math.abs(e.t - hover) < span / 100) lines.push(e.text);
    show(this.tip, true);
    put(this.tip, [clock(hover, true), ...lines].join('\n'));
    const width = this.canvas.clientWidth, right = x > width / 2;
    Object.assign(this.tip.style, { left: right ? 'auto' : `${x + 10}px`, right: right ? `${width - x + 10}px` : 'auto' });
  }
}

// statsText writes mean and highest value of a span.
export const statsText = ({ mean, max }, unit) => `mean ${reading(mean, unit)}, highest ${reading(max, unit)}`;
