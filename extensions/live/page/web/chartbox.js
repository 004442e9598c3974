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
    this.plot = h('div', { class: 'plot' }, this.canvas, ...this.scales, this.cross, this.select, this.tip);
    this.element = h('div', { class: 'chart' }, this.plot, h('div', { class: 'axis', 'aria-hidden': 'true' }, ...this.axis));
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
    const tenths = view.span < 20000;
    this.axis.forEach((e, i) => put(e, clock(right - view.span * (1 - i / 2), tenths)));
    const { hover } = view, x = (1 - (right - hover) / view.span) * this.canvas.clientWidth;
    show(this.cross, hover === hover && x >= 0);
    if (hover === hover) this.cross.style.transform = `translateX(${Math.round(x)}px)`;
  }

  // describe gives the chart a text that says what can be seen in it.
  describe() {
    const { view } = this.app, right = view.right(), parts = [];
    for (const lane of this.lanes) {
      for (const line of lane.lines) {
        const s = line.mark ? null : line.series(), stats = s?.ring.stats(right - view.span, right);
        if (stats) parts.push(`${line.name} mean ${reading(stats.mean, lane.unit)}, highest ${reading(stats.max, lane.unit)}`);
      }
    }
    this.canvas.setAttribute('aria-label', `${this.name}, last ${Math.round(view.span / 1000)} seconds: ${parts.join('; ') || 'no samples'}`);
  }

  #pointer() {
    const { view } = this.app, { plot } = this;
    let start = NaN;
    const position = (e) => Math.min(Math.max(e.clientX - plot.getBoundingClientRect().left, 0), this.canvas.clientWidth);
    const leave = () => {
      view.hover = NaN;
      show(this.tip, false);
      show(this.select, false);
      start = NaN;
      this.app.hovered();
    };
    plot.addEventListener('pointermove', (e) => {
      const x = position(e);
      view.hover = this.chart.time(x);
      this.#tip(x);
      if (start === start) {
        show(this.select, true);
        this.select.style.left = `${Math.min(x, start)}px`;
        this.select.style.width = `${Math.abs(x - start)}px`;
      }
      this.app.hovered();
    });
    plot.addEventListener('pointerleave', leave);
    plot.addEventListener('pointercancel', leave);
    plot.addEventListener('pointerdown', (e) => {
      if (e.button || e.pointerType === 'touch') return;
      start = position(e);
      plot.setPointerCapture(e.pointerId);
    });
    plot.addEventListener('pointerup', (e) => {
      const from = Math.min(position(e), start), to = Math.max(position(e), start);
      if (to - from > 5) view.set(this.chart.time(to) - this.chart.time(from), this.chart.time(to));
      leave();
    });
    plot.addEventListener('dblclick', () => this.app.live());
  }

  // tip shows the values at the pointer.
  #tip(x) {
    const { hover } = this.app.view, lines = [];
    for (const lane of this.lanes) {
      for (const line of lane.lines) {
        const s = line.series(), i = s ? s.ring.at(hover) : -1;
        if (i >= 0 && hover - s.ring.time(i) < this.chart.gap(s)) lines.push(`${line.name} ${reading(s.ring.value(i), lane.unit)}`);
      }
    }
    for (const e of this.chart.events()) if (Math.abs(e.t - hover) < this.app.view.span / 100) lines.push(e.text);
    show(this.tip, true);
    put(this.tip, [clock(hover, true), ...lines].join('\n'));
    const right = x > this.canvas.clientWidth / 2;
    this.tip.classList.toggle('left', right);
    this.tip.style.left = right ? 'auto' : `${x + 10}px`;
    this.tip.style.right = right ? `${this.canvas.clientWidth - x + 10}px` : 'auto';
  }
}
