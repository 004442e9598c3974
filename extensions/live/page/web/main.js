// The application: connection, model, sections, controls.

import { Link } from './api.js';
import { View } from './chart.js';
import { Detail } from './detail.js';
import { h, put, show } from './dom.js';
import { ROLES, clock, seconds } from './fields.js';
import { Model } from './model.js';
import { KEPT } from './ring.js';
import { Events, Summary } from './sections.js';
import { Tiles } from './tiles.js';

const $ = (id) => document.getElementById(id);
const SPANS = [[30, '30 s'], [60, '1 min'], [300, '5 min'], [900, '15 min']];
const DETAIL = 2000; // samples of a series to fetch unchanged
const HIDDEN = 30000; // ms until a hidden page closes its stream

class App {
  constructor() {
    this.model = new Model();
    this.view = new View(this.model.clock, 300000);
    this.view.changed = () => this.#viewChanged();
    this.list = null;
    this.watched = []; // fields in addition to the tiles' fields
    this.queue = []; // requests for samples
    this.fetching = 0;
    this.filled = new Set();
    this.link = new Link({ on: (kind, data) => this.#take(kind, data), state: () => this.#banner() });
  }

  start() {
    this.#controls();
    this.tiles = new Tiles(this, $('tiles'));
    this.events = new Events(this, $('events'));
    this.slow = [new Summary(this, $('summary')), this.events]; // updated once a second
    this.detail = new Detail(this, $('detail'));
    this.#load();
    this.link.watch('health', (health) => {
      this.model.health = health;
      if (!this.loaded) this.#load();
    });
    setInterval(() => this.#tick(), 250);
    setInterval(() => this.#refresh(), 30000);
    document.addEventListener('visibilitychange', () => {
      clearTimeout(this.hiding);
      if (document.hidden) this.hiding = setTimeout(() => this.link.pause(), HIDDEN);
      else this.link.resume();
    });
  }

  // #load fetches the initial state. It is repeated until it succeeds, and if it is called again while it runs.
  async #load() {
    if (this.loading) {
      this.again = true;
      return;
    }
    this.loading = true;
    this.again = false;
    try {
      await this.#ask();
      this.#restart();
      const wanted = new URLSearchParams(location.hash.slice(1)).get('device');
      if (wanted && !this.loaded) this.openDetail(wanted);
      this.loaded = true;
      show($('controls'), true);
    } catch (error) {
      if (error.status) this.failure = error.message;
    } finally {
      this.loading = false;
    }
    this.#banner();
    this.#tick();
    if (this.again) this.#load();
  }

  // #ask fetches the data that the stream does not carry.
  async #ask() {
    const { model, link } = this, [list, devices, events] = await Promise.all([link.get('list'), link.get('devices'), link.get('events', { limit: 500 })]);
    this.list = list;
    model.setList(list);
    model.setDevices(devices);
    for (const e of events.events || []) model.takeEvent(e);
    const field = model.wanted();
    if (field.length) model.takeFields(await link.get('fields', { field }));
    if (model.info.recorder) this.events.recorded((await link.get('recordings')).recordings || []);
  }

  async #refresh() {
    if (!this.loaded || !this.link.up || document.hidden) return;
    const { hash } = this.list;
    await this.#ask().catch(() => {}); // the next one may succeed; otherwise the banner reports it
    if (this.list.hash !== hash) this.#restart(); // the event of a reload came before the stream
  }

  // #restart opens the stream for the current selection.
  #restart() {
    const field = [...new Set([...this.model.wanted(), ...this.watched])];
    const fastest = Math.min(...[...this.model.devices.values()].map((d) => d.interval_seconds || 1), 1);
    this.link.stream({ field, interval: Math.max(fastest, 0.1) });
  }

  watch(fields) {
    if (fields.join() === this.watched.join()) return;
    this.watched = fields;
    this.#restart();
  }

  #take(kind, data) {
    const { model } = this;
    switch (kind) {
      case 'columns':
        model.setColumns(data);
        this.#fill();
        this.#refresh(); // a stream begins with new rows
        break;
      case 'rows':
        if (model.takeRows(data)) {
          this.filled.clear();
          this.#fill();
        }
        break;
      case 'devices': for (const d of [data].flat()) model.setDevice(d); break;
      case 'event':
        model.takeEvent(data);
        if (data.kind === 'reload') this.#load();
        if (data.kind === 'recording') this.#refresh();
        break;
      default:
    }
  }

  // #fill requests the samples between the last known one and the stream's first, most important roles first.
  #fill() {
    const { model } = this, order = Object.keys(ROLES), of = (s) => order.indexOf(model.roleOf(s.field));
    const columns = new Map(model.columns.toSorted((a, b) => of(b) - of(a)).map((s) => [`${s.device}\n${s.field}`, s]));
    this.queue = model.info.history === false ? [] : [...columns].reverse();
    for (let i = this.fetching; i < 4; i++) this.#fetch();
  }

  async #fetch() {
    this.fetching++;
    for (let next; (next = this.queue.shift());) {
      const [key, { device, field, ring }] = next, since = this.filled.has(key) ? ring.last : NaN;
      this.filled.add(key);
      await this.fill(device, field, since);
    }
    this.fetching--;
  }

  // fill fetches the samples of a field since a time; NaN means as long as the page keeps them. The
  // newest samples come unchanged, older ones as minimum and maximum of spans.
  async fill(device, field, since) {
    const { model } = this, now = model.clock.now(), every = (model.list.get(field)?.interval_seconds || 0) * 1000 || model.interval(device);
    const text = (t) => new Date(t).toISOString(), fine = now - DETAIL * every;
    let from = Math.max(since === since ? since : 0, now - KEPT);
    const queries = [];
    if (model.info.recording) queries.push({ since: text(0), until: '9000-01-01T00:00:00Z' }); // the whole recording
    else {
      if (from < fine - 60000) {
        queries.push({ since: text(from), until: text(fine), points: 750 });
        from = fine;
      }
      queries.unshift({ since: text(from) });
    }
    try {
      for (const q of queries) model.takeSamples(await this.link.get('samples', { device, field, ...q }));
    } catch {
      // the chart begins with the stream
    }
  }

  // time returns the time whose readings are shown.
  time() { return this.view.right(); }

  eventsOf(id) {
    const { devices, events } = this.model, parent = devices.get(id)?.parent;
    return events.filter((e) => e.device && (e.device === id || e.device === parent || devices.get(e.device)?.parent === id));
  }

  openDetail(id) { this.detail.open(id); }

  freeze() {
    if (this.view.end === null) this.view.set(this.view.span, this.view.right());
    else this.live();
  }

  live() { this.view.set(this.view.span, null); }

  // showTime centres the charts on a time.
  showTime(t) { this.#move(t + this.view.span / 2); }

  #move(end) {
    const [from, until] = this.#range();
    this.view.set(this.view.span, Math.min(Math.max(end, from), until));
  }

  // #range returns the time span that can be shown; for a recording, all of it.
  #range() {
    const now = this.model.clock.now();
    let first = now, last = now;
    for (const { ring } of this.model.series.values()) {
      if (ring.first < first) first = ring.first;
      if (ring.last > last) last = ring.last;
    }
    return this.model.info.recording ? [first, last] : [Math.max(first, now - KEPT), now];
  }

  // hovered moves the crosshairs in all charts.
  hovered() {
    for (const t of this.tiles.tiles.values()) if (t.chart.visible) t.chart.point();
    this.detail.chart?.point();
  }

  #tick() {
    if (!this.loaded || document.hidden) return;
    const { model } = this;
    const { info } = model;
    model.clock.stopped = info.recording ? Date.parse(info.time) : this.link.up ? NaN : model.newest;
    put($('node'), [info.hostname, info.simulated && '(simulated)', info.recording && (info.recording.startsWith('recording') ? info.recording : `recording ${info.recording}`), info.version && `warpgauge ${info.version}`].filter(Boolean).join(' · '));
    const problems = model.problems().length;
    const title = `${problems ? `▲ ${problems} · ` : ''}${info.hostname || 'warpgauge'}`;
    if (document.title !== title) document.title = title;
    this.ticks = (this.ticks || 0) + 1;
    for (const s of [this.tiles, ...(this.ticks % 4 === 0 || !this.first ? this.slow : [])]) s.update();
    this.first = true;
    this.detail.update();
    this.#banner();
    if (this.view.end !== null) this.#scrub();
  }

  // #banner shows that the data is old.
  #banner() {
    const { model, link } = this, last = model.newest;
    let text = '', age = NaN; // ms
    if (!link.known) text = '';
    else if (!link.up) {
      text = last === last ? `The exporter does not answer. Last data at ${clock(last)}` : 'The exporter does not answer.';
      if (last === last) age = Date.now() - link.answered;
    }
    else if (!this.loaded) text = this.failure ? `The page has no data: ${this.failure}` : '';
    else if (last === last && !model.info.recording && [...model.devices.values()].some((d) => d.state === 'up')) {
      const silent = Date.now() + (model.clock.offset ?? 0) - last, patience = 10000 + 3 * Math.max(...[...model.devices.values()].map((d) => d.interval_seconds || 0)) * 1000;
      if (silent > patience) {
        text = `The exporter answers, but has sent no samples since ${clock(last)}`;
        if (link.problem) text += ` (${link.problem})`;
        age = silent;
      }
    }
    // Hide the age from screen readers, because it changes every second.
    const banner = $('banner');
    if (!banner.firstChild) banner.append(h('span'), h('span', { 'aria-hidden': 'true' }));
    put(banner.firstChild, text);
    put(banner.lastChild, age === age ? `, ${seconds(Math.round(age / 1000))} ago` : '');
    show(banner, !!text);
    document.body.classList.toggle('stale', !!text);
  }

  #scrub() {
    const [from, until] = this.#range(), slider = $('time');
    slider.min = from;
    slider.max = Math.max(until, this.view.end);
    if (document.activeElement !== slider || !this.sliding) slider.value = this.view.end;
    const text = `${clock(this.view.end, true)}${this.model.info.recording ? '' : `, ${seconds((this.model.clock.now() - this.view.end) / 1000)} ago`}`;
    put($('shown'), text);
    slider.setAttribute('aria-valuetext', text);
  }

  #viewChanged() {
    const frozen = this.view.end !== null;
    show($('scrub'), frozen);
    $('freeze').setAttribute('aria-pressed', String(frozen));
    for (const b of $('spans').children) b.setAttribute('aria-pressed', String(Number(b.value) * 1000 === this.view.span));
    this.#tick();
  }

  #controls() {
    $('spans').append(...SPANS.map(([s, text]) => h('button', { type: 'button', value: s, 'aria-pressed': String(s * 1000 === this.view.span), onclick: () => this.view.set(s * 1000) }, text)));
    $('freeze').addEventListener('click', () => this.freeze());
    $('live').addEventListener('click', () => this.live());
    $('time').addEventListener('input', () => {
      this.sliding = true;
      this.#move(Number($('time').value));
      this.sliding = false;
    });
  }
}

const app = new App();
app.start();
// For tests and the browser's console.
globalThis.warpgauge = app;
