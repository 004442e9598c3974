// NVLink and XGMI: rates, states and errors of links, which the stream does not carry. They
// are asked for while the table is seen.

import { h, replace, show } from './dom.js';
import { LINK_FIELDS, amount, factor, number } from './fields.js';
import { nameOf } from './model.js';
import { section, stateOf } from './tiles.js';
import { table } from './sections.js';

const RATE = /^(nvidia_nvlink_bytes_total|amd_gpu_xgmi_bytes_total)$/;
const PER_LINK = /_(TX|RX)_(THROUGHPUT|BYTES)_PER_LINK$|_L\d+_(TX|RX)_BYTES$|(BANDWIDTH|THROUGHPUT)(_PER_LINK|_L\d+(_BYTES_PER_SECOND)?)$/;
const TOTAL = /NVLINK_(BANDWIDTH_TOTAL|THROUGHPUT_TOTAL|THROUGHPUT_BYTES_PER_SECOND)$|^DCGM_FI_PROF_NVLINK_(TX|RX)_BYTES$/;
const ERRORS = /ERROR|CRC|errors_total|recoveries_total|LINK_DOWN|UNCORRECTABLE|_ERR$/;

// The word for a field of errors: its name without what all of them share.
const plain = (name) => name.replace(/^DCGM_FI_(DEV|PROF)_/, '').replace(/^(nvidia_|amd_gpu_)/, '').replace(/NVLINK_|nvlink_|xgmi_/, '')
  .replace(/_?(ERROR)?_?(COUNT)?_?TOTAL$|_total$/i, '').replace(/_L\d+$/, '').replaceAll('_', ' ').toLowerCase();

// collect sorts an answer of fields into links: id of the GPU → {total, links, errors}.
// before has the counters of the answer before, by series.
export function collect(answer, devices, before) {
  const out = new Map(), time = Date.parse(answer.time);
  for (const { id, fields } of answer.devices || []) {
    const d = devices.get(id);
    if (!d) continue;
    const gpu = d.kind === 'link' ? d.parent || id : id;
    if (!out.has(gpu)) out.set(gpu, { total: NaN, tx: NaN, rx: NaN, links: new Map(), errors: new Map() });
    const entry = out.get(gpu);
    for (const f of fields || []) {
      const lane = d.kind === 'link' ? d.labels?.nvlink : f.labels?.link ?? /_L(\d+)(_|$)/.exec(f.name)?.[1];
      let link = null;
      if (lane !== undefined) {
        if (!entry.links.has(lane)) entry.links.set(lane, { tx: NaN, rx: NaN, both: NaN, up: null, errors: new Map() });
        link = entry.links.get(lane);
        if (d.kind === 'link' && d.state !== 'up') link.up = false;
      }
      if (f.absent?.reason.startsWith('device_') && (TOTAL.test(f.name) || RATE.test(f.name))) entry.gone = true;
      if (f.value === undefined) continue;
      const k = `${id}\n${f.name}\n${JSON.stringify(f.labels || {})}`, at = time - (f.age_seconds || 0) * 1000;
      let past = before.get(k);
      if (!past) before.set(k, past = { at, value: f.value, first: f.value, rate: NaN });
      else if (at > past.at + 5) {
        past.rate = f.value >= past.value ? (f.value - past.value) / (at - past.at) * 1000 : NaN;
        Object.assign(past, { at, value: f.value });
      }
      if (RATE.test(f.name) && link) {
        if (/tx|write/.test(f.labels?.direction)) link.tx = past.rate;
        else link.rx = past.rate;
      } else if (TOTAL.test(f.name)) {
        const v = f.value * factor(f.unit, 'bytes/s');
        if (/_TX_/.test(f.name)) entry.tx = v;
        else if (/_RX_/.test(f.name)) entry.rx = v;
        else entry.total = v;
      } else if (PER_LINK.test(f.name) && link) {
        const v = f.value * factor(f.unit, 'bytes/s');
        if (/TX/.test(f.name)) link.tx = v;
        else if (/RX/.test(f.name)) link.rx = v;
        else link.both = v;
      } else if (f.name === 'amd_gpu_xgmi_link_up' && link) {
        link.up = f.value > 0;
      } else if (ERRORS.test(f.name)) {
        const name = [plain(f.name), ...Object.entries(f.labels || {}).filter(([n]) => n !== 'link').map(([, v]) => v)].join(' ');
        (link ? link.errors : entry.errors).set(name, { value: f.value, more: f.value - past.first });
      }
    }
  }
  for (const [gpu, e] of out) {
    if (!e.gone && !e.links.size && e.total !== e.total && e.tx !== e.tx && !e.errors.size) out.delete(gpu);
  }
  return out;
}

const sum = (values) => {
  const known = values.filter((v) => v === v);
  return known.length ? known.reduce((a, b) => a + b, 0) : NaN;
};

// errorText writes errors: how many, of which kind, and how many more since the page began.
function errorText(maps) {
  const all = new Map();
  for (const m of maps) {
    for (const [name, { value, more }] of m) {
      const was = all.get(name) || { value: 0, more: 0 };
      all.set(name, { value: was.value + value, more: was.more + more });
    }
  }
  if (!all.size) return '–';
  const some = [...all].filter(([, e]) => e.value > 0);
  if (!some.length) return 'none';
  return h('span', { class: some.some(([, e]) => e.more > 0) ? 'bad' : 'warn' },
    `▲ ${some.map(([name, e]) => `${number(e.value)} ${name}${e.more > 0 ? ` (+${number(e.more)})` : ''}`).join(', ')}`);
}

const rate = (v) => amount(v, 'bytes/s');

export class Links {
  constructor(app, element) {
    this.app = app;
    this.element = element;
    this.body = section(element, 'NVLink and XGMI');
    this.body.before(h('p', { class: 'note' }, 'Data a second and errors since the driver was loaded; in brackets, errors since this page was opened.'));
    this.before = new Map();
    this.visible = true; // until it is known that there are none
    new IntersectionObserver(([e]) => { this.visible = e.isIntersecting; }, { rootMargin: '200px' }).observe(element);
    setInterval(() => this.ask(), 2000);
  }

  async ask() {
    const { app } = this;
    const now = Date.now();
    if (!app.link.up || document.hidden || this.asking || app.view.end !== null) return;
    if (!this.visible && this.found !== undefined && !(this.found === 0 && now - this.asked > 15000)) return;
    this.asking = true;
    this.asked = now;
    try {
      const answer = await app.link.get('fields', { field: LINK_FIELDS });
      if (this.before.size > 20000) this.before.clear(); // of a node whose devices come and go
      const all = collect(answer, app.model.devices, this.before);
      this.found = all.size;
      this.#show(all);
    } catch (error) {
      this.found ??= 0;
      if (app.link.up && error.status) replace(this.body, error.message, () => h('p', { class: 'note' }, error.message));
    } finally {
      this.asking = false;
    }
  }

  #show(all) {
    const { app } = this;
    show(this.element, all.size > 0);
    const open = new Set([...this.body.querySelectorAll('details[open]')].map((d) => d.dataset.id));
    const focused = document.activeElement?.closest?.('details')?.dataset.id;
    this.body.replaceChildren(...[...all].map(([id, e]) => {
      const d = app.model.devices.get(id) || { id, kind: 'gpu' }, links = [...e.links.entries()].sort(([a], [b]) => a - b), lanes = links.map(([, l]) => l);
      const tx = sum([e.tx, ...(e.tx === e.tx ? [] : lanes.map((l) => l.tx))]), rx = sum([e.rx, ...(e.rx === e.rx ? [] : lanes.map((l) => l.rx))]);
      const gone = d.state !== undefined && d.state !== 'up'; // then rates are of before
      const total = gone ? NaN : e.total === e.total ? e.total : tx === tx || rx === rx ? sum([tx, rx]) : sum(lanes.map((l) => l.both));
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
          `Link ${n}`, l.up === null ? '–' : l.up ? '● up' : '■ down', rate(l.tx), rate(l.rx), rate(l.both === l.both ? l.both : sum([l.tx, l.rx])), errorText([l.errors]),
        ]), `Links of ${nameOf(d, app.model)}`));
      if (focused === id) queueMicrotask(() => details.firstChild.focus());
      return details;
    }));
  }
}
