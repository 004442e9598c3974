// One tile per GPU and per instance: state, users, readings, a strip chart.

import { Chart } from './chart.js';
import { h, level, put, show, sign } from './dom.js';
import { ROLES, absence, number, reading, reasons, seconds } from './fields.js';
import { nameOf, usersOf } from './model.js';

// LANES lists the lanes of a device's charts: label, unit, height in a tile (0: only in the details) and in
// the details; lines of name, role, colour and style; and the roles whose levels set the upper end.
const LANES = [
  ['Activity', '%', 60, 90, [['GPU', 'activity', 'blue', 'area'], ['Tensor', 'tensor_activity', 'orange', 'line'], ['DRAM', 'memory_activity', 'teal', 'thin']], () => 100],
  ['Power', 'W', 36, 70, [['Power', 'power', 'blue', 'area'], ['Limit', 'power_limit', 'red', 'mark']], (level) => level('power_limit') * 1.08],
  ['Temperature', '°C', 0, 60, [['GPU', 'temperature', 'orange', 'line'], ['Memory', 'memory_temperature', 'purple', 'thin'], ['Slows down', 'slowdown_temperature', 'red', 'mark']]],
  ['Clocks', 'MHz', 0, 60, [['SM', 'clock', 'blue', 'line'], ['Memory', 'memory_clock', 'teal', 'thin']], (level) => level('max_clock')],
  ['Memory', 'GiB', 0, 50, [['Used', 'memory_used', 'teal', 'area']], (level) => memory(level).total],
  ['NVLink or XGMI', 'bytes/s', 0, 50, [['Data', 'link_throughput', 'purple', 'area']]],
];

// lanesOf returns the lanes of a device that have values.
export function lanesOf(app, id, all) {
  const level = (role) => app.model.value(id, role, app.time());
  return LANES.filter(([, , small, , lines]) => (all || small) && lines.some(([, role, , style]) => style !== 'mark' && app.model.pick(id, role))).map(([label, unit, small, height, lines, max]) => ({
    label, unit, height: all ? height : small, max: max && (() => max(level)),
    text: () => label === 'Power' && level('power_limit') > 0 ? `limit ${reading(level('power_limit'), 'W')}` : '',
    lines: lines.map(([name, role, colour, style]) => ({ name, colour, style, series: () => app.model.pick(id, role) })),
  }));
}

// memory returns used and total memory in GiB; the total is NaN if unknown.
function memory(value) {
  const used = value('memory_used'), total = value('memory_total');
  return { used, total: total === total ? total : used + value('memory_free') + (value('memory_reserved') || 0) };
}

// signature changes when a tile must be rebuilt because its set of readings changed.
export const signature = (app, id) => Object.keys(ROLES).map((r) => app.model.pick(id, r) ? 1 : 0).join('');

const meter = () => h('span', { class: 'meter', 'aria-hidden': 'true' }, h('i'));
const fill = (m, share) => {
  const text = share === share ? `scaleX(${Math.min(Math.max(share, 0), 1).toFixed(3)})` : 'scaleX(0)';
  if (m.shown !== text) m.firstChild.style.transform = m.shown = text;
};

export class Tile {
  constructor(app, device) {
    this.app = app;
    this.id = device.id;
    this.made = signature(app, device.id);
    const name = nameOf(device, app.model);
    this.open = h('button', { type: 'button', class: 'name', title: 'All fields of this device', onclick: () => app.openDetail(this.id) }, name);
    this.model = h('span', { class: 'model' });
    this.badge = h('span', { class: 'state' });
    this.reason = h('p', { class: 'reason' });
    this.users = h('p', { class: 'users' });
    this.readings = h('div', { class: 'readings' });
    this.rows = [];
    this.#make();
    this.chart = new Chart(app, { lanes: lanesOf(app, this.id, false), events: () => app.eventsOf(this.id), name });
    this.element = h('article', { class: 'tile', 'aria-label': name },
      h('header', {}, h('h2', {}, this.open), this.model, this.badge),
      this.reason, this.users, h('div', { class: 'body' }, this.readings, this.chart.element));
    this.element.classList.toggle('instance', device.kind !== 'gpu');
  }

  close() {
    this.chart.close();
    this.element.remove();
  }

  // #make lays out the readings of this device.
  #make() {
    const { app, id } = this, has = (role) => app.model.pick(id, role), value = (role) => app.model.value(id, role, app.time());
    const activity = h('dl', { class: 'activity' });
    for (const [role, style] of [['activity', 'area'], ['tensor_activity', 'line'], ['memory_activity', 'thin']]) {
      if (!has(role)) continue;
      const v = h('dd'), m = meter();
      activity.append(h('div', { class: `of-${role}` }, h('dt', {}, h('i', { class: `key ${style}` }), ROLES[role].label), v, m));
      this.rows.push(() => {
        const x = value(role);
        put(v, reading(x, '%'));
        fill(m, x / 100);
        this.#explain(v, role, x);
      });
    }
    const list = h('dl', { class: 'list' });
    // row adds a reading for some roles. f returns its text, share of a limit, style and title.
    const row = (label, roles, f) => {
      if (!roles.some(has)) return;
      const v = h('dd'), m = meter();
      list.append(h('div', {}, h('dt', {}, label), v, m));
      this.rows.push(() => {
        const { text, share, style, title } = f();
        put(v, text);
        v.className = style || '';
        show(m, share >= 0);
        fill(m, share);
        if (title !== undefined && v.title !== title) v.title = title;
        if (title === undefined) this.#explain(v, roles[0], value(roles[0]));
      });
    };
    row('Power', ['power'], () => {
      const power = value('power'), limit = value('power_limit');
      return { text: limit === limit ? `${number(power)} / ${number(limit)} W` : reading(power, 'W'), share: power / limit };
    });
    row('Temperature', ['temperature', 'memory_temperature'], () => {
      const temp = value('temperature'), slow = value('slowdown_temperature'), stop = value('shutdown_temperature'), most = slow === slow ? slow : stop, parts = [];
      if (has('temperature')) parts.push(`${temp >= slow ? '▲ ' : ''}${most === most ? `${number(temp)} / ${number(most)} °C` : reading(temp, '°C')}`);
      if (has('memory_temperature')) parts.push(`memory ${number(value('memory_temperature'))}${has('temperature') ? '' : ' °C'}`);
      return { text: parts.join(' · '), share: temp / most, style: temp >= slow && 'bad', title: most === most ? `The GPU ${slow === slow ? 'slows down' : 'shuts down'} at ${number(most)} °C` : '' };
    });
    row('Clocks', ['clock'], () => {
      const max = value('max_clock'), memoryClock = has('memory_clock') ? ` · memory ${number(value('memory_clock'))}` : '';
      return { text: `SM ${number(value('clock'))}${max === max ? ` of ${number(max)}` : ''} MHz${memoryClock}` };
    });
    row('Throttle', ['clock_events', 'throttling'], () => {
      const names = this.#throttled();
      return { text: names === null ? '–' : names.map((r) => r.bad ? `▲ ${r.text}` : r.text).join(', ') || 'none', style: names?.some((r) => r.bad) && 'warn', title: '' };
    });
    row('Memory', ['memory_used'], () => {
      const { used, total } = memory(value);
      return { text: total === total ? `${number(used, 1)} / ${number(total, 1)} GiB` : reading(used, 'GiB'), share: used / total };
    });
    this.readings.append(activity, list);
  }

  // #throttled returns why the clocks are reduced now, or null if unknown.
  #throttled() {
    const { app, id } = this, t = app.time();
    const mask = app.model.value(id, 'clock_events', t);
    if (mask === mask) return reasons(mask);
    const all = app.model.pick(id, 'throttling') || [];
    const known = all.map((s) => [s, app.model.valueOf(s, t)]).filter(([, v]) => v === v);
    return known.length ? known.filter(([, v]) => v > 0).map(([s]) => ({ text: Object.values(s.labels).join(' '), bad: true })) : null;
  }

  // #explain adds the reason to a blank reading.
  #explain(e, role, v) {
    const s = v === v ? null : this.app.model.pick(this.id, role);
    const why = s ? absence(this.app.model.absent.get(`${this.id}\n${s.field}`)) || 'no new samples' : '';
    if (e.title !== why) e.title = why;
  }

  // update writes the changes. all reports whether to keep a line for users.
  update(d, all) {
    const { app } = this, { word, why, since } = d.status;
    put(this.model, d.model || '');
    put(this.badge, `${sign(word)} ${word}`);
    this.badge.className = `state ${level(word)}`;
    this.element.classList.toggle('down', d.state !== 'up');
    const age = since ? ` for ${seconds((app.model.clock.now() - Date.parse(since)) / 1000)}` : '';
    put(this.reason, word === 'up' ? '' : `${why || 'reason not known'}${age}`);
    show(this.reason, word !== 'up');
    const users = usersOf(d), processes = d.processes ? `${d.processes.length} process${d.processes.length === 1 ? '' : 'es'}` : '';
    const text = [users.slice(0, 2).join(', ') + (users.length > 2 ? ` and ${users.length - 2} more` : ''), processes].filter(Boolean).join(' · ');
    put(this.users, text);
    show(this.users, all);
    if (!this.chart.visible) return;
    for (const r of this.rows) r();
    this.chart.update();
  }
}

// Tiles keeps the tiles of all devices.
export class Tiles {
  constructor(app, element) {
    this.app = app;
    this.element = element;
    this.tiles = new Map();
  }

  update() {
    const devices = this.app.model.tiles();
    const ids = new Set(devices.map((d) => d.id));
    for (const [id, tile] of this.tiles) {
      if (ids.has(id) && tile.made === signature(this.app, id)) continue;
      tile.close();
      this.tiles.delete(id);
    }
    const users = devices.some((d) => d.users?.length || d.processes?.length);
    let before = null;
    for (const d of devices) {
      let tile = this.tiles.get(d.id);
      if (!tile) this.tiles.set(d.id, tile = new Tile(this.app, d));
      const next = before ? before.nextSibling : this.element.firstChild;
      if (tile.element !== next) this.element.insertBefore(tile.element, next);
      before = tile.element;
      tile.update(d, users);
    }
    this.element.classList.toggle('few', devices.length < 3);
    show(this.element, devices.length > 0);
  }
}
