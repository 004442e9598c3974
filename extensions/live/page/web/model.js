// The page's data: devices, series with samples, events. Nothing here draws.

import { KEPT, Ring } from './ring.js';
import { ROLES, factor, plainUnit } from './fields.js';

const EVENTS = 500;
// Causes that mean that the machine has nothing for a collector, or that another collector serves it.
const NOTHING_HERE = new Set(['not_built_in', 'not_loaded', 'no_devices', 'nothing_to_read', 'standby']);

// A Series is one column of the stream. Its values are in the page's unit.
export class Series {
  constructor(device, field, labels, unit, shown) {
    this.device = device;
    this.field = field;
    this.labels = labels || {};
    this.unit = shown;
    this.scale = factor(unit, this.unit);
    this.ring = new Ring();
  }
}

const key = (device, field, labels) => `${device}\n${field}\n${JSON.stringify(labels ? Object.entries(labels).sort() : [])}`;

// A Clock follows the exporter's clock by the newest rows, so that a current row appears at the
// right edge. Its offset is the smallest delay of the last rows.
export class Clock {
  constructor() {
    this.offsets = [];
    this.stopped = NaN;
  }

  // heard takes the time of the newest row.
  heard(t, local = Date.now()) {
    this.offsets.push(t - local);
    if (this.offsets.length > 20) this.offsets.shift();
    this.offset = Math.max(...this.offsets);
  }

  now(local = Date.now()) {
    if (this.stopped === this.stopped) return this.stopped;
    return local + (this.offset ?? 0);
  }
}

export class Model {
  constructor() {
    this.devices = new Map(); // by id, in the order of the answer
    this.info = {}; // the answer Devices without its devices
    this.health = null;
    this.list = new Map(); // ListField by name
    this.origins = new Map(); // by role: fields of the list with that role, their labels and rank
    this.series = new Map(); // by key
    this.columns = [];
    this.roles = new Map(); // results of pick, until columns change
    this.absent = new Map(); // reason for a missing value, by device and field
    this.events = [];
    this.clock = new Clock();
    this.newest = NaN; // time of the newest row
    this.rows = 0; // number of rows
    this.generation = 0; // grows when devices or columns change
  }

  setDevices(answer) {
    const { devices, ...info } = answer;
    this.info = info;
    this.devices = new Map((devices || []).map((d) => [d.id, d]));
    this.generation++;
  }

  setDevice(device) {
    this.devices.set(device.id, device);
    this.generation++;
  }

  setList(answer) {
    this.list = new Map((answer.fields || []).map((f) => [f.name, f]));
    this.origins = new Map(Object.keys(ROLES).map((r) => [r, []]));
    for (const f of this.list.values()) for (const r of f.roles || []) this.origins.get(r.role)?.push({ ...r, name: f.name });
    for (const all of this.origins.values()) all.sort((a, b) => a.rank - b.rank);
    this.roles.clear();
  }

  // roleOf returns a field's first role that the page shows, or undefined.
  roleOf(name) { return this.list.get(name)?.roles?.find((r) => r.role in ROLES)?.role; }

  // unitOf returns the unit for a field: its role's unit, or its own.
  unitOf(name, unit) { return ROLES[this.roleOf(name)]?.unit || plainUnit(unit); }

  // wanted returns the list's fields that tiles show.
  wanted() { return [...this.list.keys()].filter((name) => this.roleOf(name)); }

  // tiles returns the devices with a tile: GPUs, each followed by its instances.
  tiles() {
    const all = [...this.devices.values()], out = [];
    const below = (id) => {
      for (const d of all) {
        if (d.parent === id && (d.kind === 'instance' || d.kind === 'compute instance')) {
          out.push(d);
          below(d.id);
        }
      }
    };
    for (const d of all) {
      if (d.kind === 'gpu') {
        out.push(d);
        below(d.id);
      }
    }
    return out;
  }

  #series(device, field, labels, unit) {
    const k = key(device, field, labels);
    let s = this.series.get(k);
    if (!s) this.series.set(k, s = new Series(device, field, labels, unit, this.unitOf(field, unit)));
    return s;
  }

  setColumns({ columns }) {
    this.columns = (columns || []).map((c) => this.#series(c.device, c.field, c.labels, c.unit));
    const current = new Set(this.columns);
    for (const [k, s] of this.series) {
      if (!current.has(s) && !(s.ring.last > this.newest - KEPT)) this.series.delete(k);
    }
    this.roles.clear();
    this.generation++;
  }

  // takeRows adds new rows. If the exporter's clock was set back, it first forgets all samples. It
  // reports whether that happened.
  takeRows({ rows }) {
    const newest = Math.max(...(rows || []).map((r) => r.t)), back = newest < this.newest - 1000;
    if (back) {
      this.clock.offsets = [];
      for (const s of this.series.values()) s.ring.clear();
    }
    for (const row of rows || []) {
      const values = row.v || [];
      for (let i = 0; i < values.length; i++) {
        const s = this.columns[row.first + i], v = values[i];
        if (!s) continue;
        if (v !== null) s.ring.push(row.t, v * s.scale);
        // null may mean that the device was not read in this row. It is blank only if a value was
        // due.
        else if (row.t - s.ring.last > 1.5 * this.every(s)) s.ring.push(row.t, NaN);
      }
    }
    this.rows += rows?.length || 0;
    if (newest > -Infinity) {
      this.newest = newest;
      this.clock.heard(newest);
    }
    return back;
  }

  // takeFields stores current values for series without rows, and reasons for missing values.
  takeFields(answer) {
    const time = Date.parse(answer.time);
    for (const { id, fields } of answer.devices || []) {
      for (const f of fields || []) {
        const k = `${id}\n${f.name}`;
        if (f.absent) this.absent.set(k, f.absent);
        else this.absent.delete(k);
        if (f.value === undefined || !this.roleOf(f.name)) continue;
        const s = this.#series(id, f.name, f.labels, f.unit);
        if (!s.ring.length) s.ring.push(time - (f.age_seconds || 0) * 1000, f.value * s.scale);
      }
    }
    this.roles.clear();
  }

  // takeSamples merges fetched samples into the series.
  takeSamples(answer) {
    for (const got of answer.series || []) {
      if (got.buffered) continue; // the stream lacks them, too
      const s = this.#series(answer.device, answer.field, got.labels, answer.unit);
      let times = got.times, values = got.values;
      if (answer.step) { // minimum and maximum of each span
        times = [];
        values = [];
        got.times.forEach((t, i) => {
          times.push(t, t + answer.step / 2);
          values.push(got.min[i], got.max[i]);
        });
      }
      s.ring.merge(times, values.map((v) => v === null ? NaN : v * s.scale));
    }
    this.roles.clear();
  }

  takeEvent(event) {
    event.t = Date.parse(event.time);
    let i = this.events.length;
    while (i > 0 && this.events[i - 1].t > event.t) i--;
    const same = (e) => e.t === event.t && e.kind === event.kind && e.device === event.device && e.text === event.text;
    for (let j = i - 1; j >= 0 && this.events[j].t === event.t; j--) if (same(this.events[j])) return false;
    this.events.splice(i, 0, event);
    if (this.events.length > EVENTS) this.events.shift();
    return true;
  }

  // find returns the first series of a device and field, with any labels.
  find(device, field) {
    return [...this.series.values()].filter((s) => s.device === device && s.field === field);
  }

  // pick returns the series of a device for a role: the first by rank that has a value, or null.
  // For a role with many it returns an array.
  pick(device, role) {
    const k = `${device}\n${role}`;
    let found = this.roles.get(k);
    if (found !== undefined) return found;
    const has = ({ labels }, label) => { // like field.Descriptor.RoleOf
      const values = Object.values(labels);
      return label === '*' || (label ? values.includes(label) : !values.length);
    };
    const { many } = ROLES[role], origins = this.origins.get(role) || [];
    const all = origins.flatMap((o) => this.find(device, o.name).filter((s) => has(s, o.label))).filter((s) => s.ring.length);
    found = many ? all : all.find((s) => !Number.isNaN(s.ring.value(s.ring.length - 1))) || all[0] || null;
    if (all.length) this.roles.set(k, found); // otherwise search again next time
    return all.length ? found : null;
  }

  // interval returns the sampling interval of a device, in ms.
  interval(device) {
    const seconds = this.devices.get(device)?.interval_seconds;
    return seconds > 0 ? seconds * 1000 : 1000;
  }

  // every returns the reading interval of a series, in ms.
  every(series) { return Math.max(this.interval(series.device), (this.list.get(series.field)?.interval_seconds || 0) * 1000); }

  // gap returns the distance of samples from which a line is broken, in ms.
  gap(series) { return Math.max(3.5 * this.every(series), 2500); }

  // value returns the value of a role at time t, or NaN if it is blank or outdated.
  value(device, role, t) {
    const s = this.pick(device, role);
    return s ? this.valueOf(s, t) : NaN;
  }

  valueOf(series, t) {
    const i = series.ring.at(t);
    if (i < 0) return NaN;
    // A row has all values of a device, so an old row means that none follow.
    return t - series.ring.time(i) > Math.max(5 * this.every(series), 5000) ? NaN : series.ring.value(i);
  }

  // problems returns all problems, worst first: {text, reason, bad, device}.
  problems() {
    const out = [];
    // A collector without devices on this machine is a problem only if no collector has any.
    const served = [...this.devices.values()].some((d) => d.state === 'up');
    for (const c of this.info.collectors || []) {
      if (!c.up && !(served && NOTHING_HERE.has(c.cause))) out.push({ text: `Collector ${c.name} is not up`, reason: c.reason || c.cause || '', bad: false });
    }
    for (const d of this.devices.values()) {
      const { word, why, since } = d.status;
      if (word !== 'up') out.push({ text: `${nameOf(d, this)} is ${word}`, reason: why || '', bad: word === 'failed' || d.state !== 'up' && d.state !== 'released', device: d.id, since });
    }
    return out.sort((a, b) => b.bad - a.bad);
  }
}

// nameOf returns the display name of a device.
export function nameOf(d, model) {
  const gpu = d.gpu !== undefined ? `GPU ${d.gpu}` : d.id;
  switch (d.kind) {
    case 'gpu': return gpu;
    case 'instance': return `${gpu} · ${d.instance?.profile || ''} ${d.instance?.id !== undefined ? `#${d.instance.id}` : ''}`.trim();
    case 'compute instance': return `${gpu} · #${d.instance?.id ?? '?'}/${d.instance?.compute_id ?? '?'}`;
    case 'link': return `${d.parent && model?.devices.get(d.parent)?.gpu !== undefined ? gpu : Object.values(d.labels || {}).slice(1).join(' ') || gpu} link ${d.labels?.nvlink ?? ''}`.trim();
    default: return `${d.kind} ${Object.values(d.labels || {}).join(' ') || d.id}`;
  }
}

// usersOf formats the users of a device.
export function usersOf(d) {
  return (d.users || []).map((u) => u.pod ? [u.namespace, u.pod, u.container].filter(Boolean).join('/') : u.job ? `job ${u.job}` : '').filter(Boolean);
}
