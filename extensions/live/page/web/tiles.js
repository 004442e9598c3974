// A tile per GPU and per instance of one: state, users, readings, a strip chart.

import { ChartBox, reading } from './chartbox.js';
import { h, level, put, show, sign } from './dom.js';
import { ROLES, absence, number, reasons, seconds } from './fields.js';
import { healthText, nameOf, usersOf } from './model.js';

// activityLane, powerLane and the others are lanes of a device's charts.
export function lanesOf(app, id, all) {
  const { model } = app, series = (role) => () => model.pick(id, role);
  const level = (role) => model.value(id, role, app.time());
  const lanes = [];
  if (['activity', 'tensor_activity', 'memory_activity'].some((role) => model.pick(id, role))) {
    lanes.push({
      label: 'Activity', unit: '%', max: 100, height: all ? 90 : 60,
      lines: [
        { name: 'GPU', series: series('activity'), colour: 'blue', style: 'area' },
        { name: 'Tensor', series: series('tensor_activity'), colour: 'orange', style: 'line' },
        { name: 'DRAM', series: series('memory_activity'), colour: 'teal', style: 'thin' },
      ],
    });
  }
  if (model.pick(id, 'power')) {
    lanes.push({
      label: 'Power', unit: 'W', height: all ? 70 : 36, max: () => level('power_limit') * 1.08,
      text: () => level('power_limit') > 0 ? `limit ${reading(level('power_limit'), 'W')}` : '',
      lines: [
        { name: 'Power', series: series('power'), colour: 'blue', style: 'area' },
        { name: 'Limit', series: series('power_limit'), colour: 'red', mark: true },
      ],
    });
  }
  if (!all) return lanes;
  if (model.pick(id, 'temperature') || model.pick(id, 'memory_temperature')) {
    lanes.push({
      label: 'Temperature', unit: '°C', height: 60,
      lines: [
        { name: 'GPU', series: series('temperature'), colour: 'orange', style: 'line' },
        { name: 'Memory', series: series('memory_temperature'), colour: 'purple', style: 'thin' },
        { name: 'Slows down', series: series('slowdown_temperature'), colour: 'red', mark: true },
      ],
    });
  }
  if (model.pick(id, 'clock')) {
    lanes.push({
      label: 'Clocks', unit: 'MHz', height: 60, max: () => level('max_clock'),
      lines: [
        { name: 'SM', series: series('clock'), colour: 'blue', style: 'line' },
        { name: 'Memory', series: series('memory_clock'), colour: 'teal', style: 'thin' },
      ],
    });
  }
  if (model.pick(id, 'memory_used')) {
    lanes.push({
      label: 'Memory', unit: 'GiB', height: 50, max: () => memory(app, id, app.time()).total,
      lines: [{ name: 'Used', series: series('memory_used'), colour: 'teal', style: 'area' }],
    });
  }
  if (model.pick(id, 'link_throughput')) {
    lanes.push({ label: 'NVLink or XGMI', unit: 'bytes/s', height: 50, lines: [{ name: 'Data', series: series('link_throughput'), colour: 'purple', style: 'area' }] });
  }
  return lanes;
}

// gapOf says from which distance of samples on a line is broken.
export const gapOf = (app) => (series) => series ? Math.max(3.5 * app.model.every(series), 2500) : 3000;

// memory is used and total in GiB, the latter NaN if it is not known.
function memory(app, id, t) {
  const value = (role) => app.model.value(id, role, t);
  const used = value('memory_used'), free = value('memory_free'), reserved = value('memory_reserved');
  let total = value('memory_total');
  if (total !== total) total = used + free + (reserved === reserved ? reserved : 0);
  return { used, total };
}

// stateOf is the state that a tile shows: the device's, or its health if it is up.
export function stateOf(app, d) {
  const health = app.model.health?.devices?.find((x) => x.id === d.id);
  if (d.state === 'up' && health && (health.state === 'degraded' || health.state === 'failed')) return { state: health.state, reason: healthText(health), since: health.since };
  return { state: d.state, reason: d.state === 'up' ? '' : d.reason || d.cause, since: d.since };
}

// signature changes when a tile has to be made again: another set of readings.
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
    this.pick = h('input', { type: 'checkbox', name: 'compare', 'aria-label': `Compare ${name}`, onchange: () => app.compare(this.id, this.pick.checked) });
    this.picker = h('label', { class: 'pick' }, this.pick, 'compare');
    this.reason = h('p', { class: 'reason' });
    this.users = h('p', { class: 'users' });
    this.readings = h('div', { class: 'readings' });
    this.rows = [];
    this.#make();
    this.box = new ChartBox(app, { lanes: lanesOf(app, this.id, false), events: () => app.eventsOf(this.id), gap: gapOf(app), name });
    this.element = h('article', { class: 'tile', 'aria-label': name },
      h('header', {}, h('h2', {}, this.open), this.model, this.picker, this.badge),
      this.reason, this.users, h('div', { class: 'body' }, this.readings, this.box.element));
    this.element.classList.toggle('instance', device.kind !== 'gpu');
  }

  close() {
    this.box.close();
    this.element.remove();
  }

  // make lays out the readings that this device has.
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
    const row = (label, update, withMeter) => {
      const v = h('dd'), m = withMeter ? meter() : null;
      list.append(h('div', {}, h('dt', {}, label), v, m || ''));
      this.rows.push(() => update(v, m));
    };
    if (has('power')) {
      row('Power', (v, m) => {
        const power = value('power'), limit = value('power_limit');
        put(v, limit === limit ? `${number(power)} / ${number(limit)} W` : reading(power, 'W'));
        show(m, limit > 0);
        fill(m, power / limit);
        this.#explain(v, 'power', power);
      }, true);
    }
    if (has('temperature') || has('memory_temperature')) {
      row('Temperature', (v, m) => {
        const temp = value('temperature'), mem = value('memory_temperature'), slow = value('slowdown_temperature'), stop = value('shutdown_temperature');
        const parts = [], most = slow === slow ? slow : stop;
        if (has('temperature')) parts.push(`${temp >= slow ? '▲ ' : ''}${most === most ? `${number(temp)} / ${number(most)} °C` : reading(temp, '°C')}`);
        if (has('memory_temperature')) parts.push(`memory ${number(mem)}${has('temperature') ? '' : ' °C'}`);
        put(v, parts.join(' · '));
        const why = most === most ? `The GPU ${slow === slow ? 'slows down' : 'shuts down'} at ${number(most)} °C` : '';
        if (v.title !== why) v.title = why;
        v.classList.toggle('bad', temp >= slow);
        show(m, most > 0);
        fill(m, temp / most);
      }, true);
    }
    if (has('clock')) {
      row('Clocks', (v) => {
        const sm = value('clock'), mem = value('memory_clock'), max = value('max_clock');
        const parts = [`SM ${number(sm)}${max === max ? ` of ${number(max)}` : ''} MHz`];
        if (has('memory_clock')) parts.push(`memory ${number(mem)}`);
        put(v, parts.join(' · '));
      });
    }
    if (has('clock_events') || has('throttling')) {
      row('Throttle', (v) => {
        const names = this.#throttled();
        put(v, names === null ? '–' : names.length ? names.map((r) => r.bad ? `▲ ${r.text}` : r.text).join(', ') : 'none');
        v.classList.toggle('warn', !!names?.some((r) => r.bad));
      });
    }
    if (has('memory_used')) {
      row('Memory', (v, m) => {
        const { used, total } = memory(app, id, app.time());
        put(v, total === total ? `${number(used, 1)} / ${number(total, 1)} GiB` : reading(used, 'GiB'));
        show(m, total > 0);
        fill(m, used / total);
      }, true);
    }
    this.readings.append(activity, list);
  }

  // throttled names what holds the clocks down now; null if that is not known.
  #throttled() {
    const { app, id } = this, t = app.time();
    const mask = app.model.value(id, 'clock_events', t);
    if (mask === mask) return reasons(mask);
    const all = app.model.pick(id, 'throttling') || [];
    const known = all.map((s) => [s, app.model.valueOf(s, t)]).filter(([, v]) => v === v);
    return known.length ? known.filter(([, v]) => v > 0).map(([s]) => ({ text: Object.values(s.labels).join(' '), bad: true })) : null;
  }

  // explain says on a blank reading why it is blank.
  #explain(e, role, v) {
    const s = v === v ? null : this.app.model.pick(this.id, role);
    const why = s ? absence(this.app.model.absent.get(`${this.id}\n${s.field}`)) || 'no new samples' : '';
    if (e.title !== why) e.title = why;
  }

  // update writes what has changed; all says whether to keep a line for users.
  update(d, all) {
    const { app } = this, { state, reason, since } = stateOf(app, d);
    put(this.model, d.model || '');
    put(this.badge, `${sign(state)} ${state}`);
    this.badge.className = `state ${level(state)}`;
    this.element.classList.toggle('down', d.state !== 'up');
    const age = since ? ` for ${seconds((app.model.clock.now() - Date.parse(since)) / 1000)}` : '';
    put(this.reason, state === 'up' ? '' : `${reason || 'reason not known'}${age}`);
    show(this.reason, state !== 'up');
    const users = usersOf(d), processes = d.processes ? `${d.processes.length} process${d.processes.length === 1 ? '' : 'es'}` : '';
    const text = [users.slice(0, 2).join(', ') + (users.length > 2 ? ` and ${users.length - 2} more` : ''), processes].filter(Boolean).join(' · ');
    put(this.users, text);
    show(this.users, all);
    show(this.picker, app.comparing);
    this.pick.checked = app.compared.has(this.id);
    if (!this.box.chart.visible) return;
    for (const r of this.rows) r();
    this.box.update();
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

  describe() { for (const t of this.tiles.values()) if (t.box.chart.visible) t.box.describe(); }
}

// section gives a section of the page a heading and a body, once.
export function section(element, title, note) {
  if (!element.firstChild) {
    const id = `${element.id}-title`;
    element.append(h('h2', { id }, title), ...(note ? [h('p', { class: 'note' }, note)] : []), h('div', { class: 'content' }));
  }
  return element.lastChild;
}


