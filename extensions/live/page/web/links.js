// The table of links between GPUs: rates, states and errors, which the stream does not carry. The page
// polls them while the table is visible. Roles give the fields their meaning, for any vendor.

import { h, replace, show } from './dom.js';
import { amount, factor, number } from './fields.js';
import { nameOf } from './model.js';
import { section, table } from './sections.js';
import { stateOf } from './tiles.js';

const ROLES = new Set(['link_throughput', 'link_data', 'link_sent', 'link_received', 'link_up', 'link_errors']);

// plain returns an error field's name without the common prefix.
const plain = (name) => name.replace(/^DCGM_FI_(DEV|PROF)_/, '').replace(/^[a-z]+_(gpu_)?/, '').replace(/[A-Z]+LINK_|[a-z]+link_/, '')
  .replace(/_?(ERROR)?_?(COUNT)?_?TOTAL$|_total$/i, '').replace(/_L\d+$/, '').replaceAll('_', ' ').toLowerCase();

// collect sorts an answer of fields into links: GPU id → {link_throughput, …, links, errors}. before
// holds the previous answer's counters by series.
export function collect(answer, devices, before) {
  const out = new Map(), time = Date.parse(answer.time);
  const entry = (all, key, more) => all.get(key) || all.set(key, { link_sent: NaN, link_received: NaN, link_throughput: NaN, link_data: NaN, errors: new Map(), ...more }).get(key);
  for (const { id, fields } of answer.devices || []) {
    const d = devices.get(id);
    if (!d) continue;
    for (const f of fields || []) {
      if (!ROLES.has(f.role)) continue;
      const gpu = entry(out, d.kind === 'link' ? d.parent || id : id, { links: new Map() });
      const lane = d.kind === 'link' ? d.labels?.nvlink : f.labels?.link ?? /_L(\d+)(_|$)/.exec(f.name)?.[1];
      const to = lane === undefined ? gpu : entry(gpu.links, lane, { up: null });
      if (d.kind === 'link' && d.state !== 'up') to.up = false;
      if (f.value === undefined) continue;
      const k = `${id}\n${f.name}\n${JSON.stringify(f.labels || {})}`, at = time - (f.age_seconds || 0) * 1000;
      let past = before.get(k);
      if (!past) before.set(k, past = { at, value: f.value, first: f.value, rate: NaN });
      else if (at > past.at + 5) {
        past.rate = f.value >= past.value ? (f.value - past.value) / (at - past.at) * 1000 : NaN;
        Object.assign(past, { at, value: f.value });
      }
      if (f.role === 'link_up') to.up = f.value > 0;
      else if (f.role === 'link_errors') {
        const name = [plain(f.name), ...Object.entries(f.labels || {}).filter(([n]) => n !== 'link').map(([, v]) => v)].join(' ');
        to.errors.set(name, { value: f.value, more: f.value - past.first });
      } else to[f.role] = f.type === 'counter' ? past.rate : f.value * factor(f.unit, 'bytes/s');
    }
  }
  return out;
}

const sum = (values) => {
  const known = values.filter((v) => v === v);
  return known.length ? known.reduce((a, b) => a + b, 0) : NaN;
};

// errorText formats errors: count, kind, and growth since the page was opened.
function errorText(maps) {
  const all = new Map();
  for (const [name, { value, more }] of maps.flatMap((m) => [...m])) {
    const was = all.get(name) || { value: 0, more: 0 };
    all.set(name, { value: was.value + value, more: was.more + more });
  }
  const some = [...all].filter(([, e]) => e.value > 0);
  if (!some.length) return all.size ? 'none' : '–';
  return h('span', { class: some.some(([, e]) => e.more > 0) ? 'bad' : 'warn' },
    `▲ ${some.map(([name, e]) => `${number(e.value)} ${name}${e.more > 0 ? ` (+${number(e.more)})` : ''}`).join(', ')}`);
}

const rate = (v) => amount(v, 'bytes/s');
const both = (e) => [e.link_throughput, e.link_data, sum([e.link_sent, e.link_received])].find((v) => v === v) ?? NaN;

export class Links {
  constructor(app, element) {
    this.app = app;
    this.element = element;
    this.body = section(element, 'NVLink and XGMI', 'Data a second and errors since the driver was loaded; in brackets, errors since this page was opened.');
    this.before = new Map();
    this.visible = true; // until the page knows that there are none
    new IntersectionObserver(([e]) => { this.visible = e.isIntersecting; }, { rootMargin: '200px' }).observe(element);
    setInterval(() => this.ask(), 2000);
  }

  async ask() {
    const { app } = this;
    if (!app.loaded || !app.link.up || document.hidden || this.asking || app.view.end !== null) return;
    const names = [...app.model.list.values()].filter((f) => f.roles?.some((r) => ROLES.has(r.role))).map((f) => f.name.replace(/_L\d+/, '_L*'));
    const field = [...new Set(names)].slice(0, 100); // queries are limited
    if (!field.length) this.#show(new Map());
    if (!field.length || (!this.visible && this.found)) return;
    this.asking = true;
    try {
      const answer = await app.link.get('fields', { field });
      if (this.before.size > 20000) this.before.clear(); // devices can come and go
      this.#show(collect(answer, app.model.devices, this.before));
    } catch (error) {
      this.found ??= 0;
      if (app.link.up && error.status) replace(this.body, error.message, () => h('p', { class: 'note' }, error.message));
    } finally {
      this.asking = false;
    }
  }

  #show(all) {
    const { app } = this;
    this.found = all.size;
    show(this.element, all.size > 0);
    const open = new Set([...this.body.querySelectorAll('details[open]')].map((d) => d.dataset.id));
    const focused = document.activeElement?.closest?.('details')?.dataset.id;
    this.body.replaceChildren(...[...all].map(([id, e]) => {
      const d = app.model.devices.get(id) || { id, kind: 'gpu' }, links = [...e.links.entries()].sort(([a], [b]) => a - b), lanes = links.map(([, l]) => l);
      const known = (v, lane) => v === v ? v : sum(lanes.map(lane)), gone = d.state !== undefined && d.state !== 'up'; // rates would be outdated
      const tx = known(e.link_sent, (l) => l.link_sent), rx = known(e.link_received, (l) => l.link_received), total = gone ? NaN : known(both(e), both);
      const states = lanes.filter((l) => l.up !== null), down = states.filter((l) => !l.up).length;
      const facts = [
        h('span', { class: 'name' }, nameOf(d, app.model), stateOf(app, d).state === 'up' || d.kind !== 'gpu' ? '' : ` (${d.state})`),
        h('span', {}, links.length ? `${links.length} links${states.length ? `, ${down ? `■ ${down} down` : 'all up'}` : ''}` : ''),
        h('span', { class: 'n' }, total === total ? `${rate(total)} in all` : '–'),
        h('span', { class: 'n' }, tx === tx && !gone ? `${rate(tx)} sent` : ''),
        h('span', { class: 'n' }, rx === rx && !gone ? `${rate(rx)} received` : ''),
        h('span', { class: 'errors' }, 'Errors: ', errorText([e.errors, ...lanes.map((l) => l.errors)])),
      ];
      if (!links.length) return h('div', { class: 'links-row' }, facts);
      const details = h('details', { open: open.has(id), 'data-id': id }, h('summary', { class: 'links-row' }, facts),
        table([['Link'], ['State'], ['Sent', 'n'], ['Received', 'n'], ['Both', 'n'], ['Errors']], links.map(([n, l]) => [
          `Link ${n}`, l.up === null ? '–' : l.up ? '● up' : '■ down', rate(l.link_sent), rate(l.link_received), rate(both(l)), errorText([l.errors]),
        ]), `Links of ${nameOf(d, app.model)}`));
      if (focused === id) queueMicrotask(() => details.firstChild.focus());
      return details;
    }));
  }
}
