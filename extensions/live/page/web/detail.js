// The dialog with everything about one device: identity, charts, processes, events, and every field
// with its unit, window, age or reason for absence.

import { Chart } from './chart.js';
import { h, level, put, replace, sign } from './dom.js';
import { absence, amount, date, factor, plainUnit, seconds } from './fields.js';
import { nameOf, usersOf } from './model.js';
import { PROCESS_COLUMNS, eventTable, processRows, table } from './sections.js';
import { lanesOf, signature } from './tiles.js';

export class Detail {
  constructor(app, dialog) {
    this.app = app;
    this.dialog = dialog;
    this.id = null;
    this.plotted = []; // additional plotted fields
    dialog.addEventListener('close', () => this.#closed());
    dialog.addEventListener('click', (e) => {
      if (e.target === dialog) dialog.close(); // the backdrop
    });
    setInterval(() => this.#ask(), 1000);
  }

  open(id) {
    const { app } = this, d = app.model.devices.get(id);
    if (!d) return;
    if (this.id) this.chart?.close();
    this.id = id;
    this.plotted = [];
    this.title = h('h2', { id: 'detail-title' }, nameOf(d, app.model));
    this.state = h('span', { class: 'state' });
    this.identity = h('dl', { class: 'facts' });
    this.plot = h('div');
    this.filter = h('input', { type: 'search', name: 'filter', placeholder: 'Filter fields', 'aria-label': 'Filter fields', oninput: () => this.#rows() });
    this.note = h('span', { class: 'note', role: 'status' });
    this.fields = h('div');
    this.extra = h('div');
    this.answer = null;
    this.dialog.replaceChildren(
      h('header', {}, this.title, this.state, h('button', { type: 'button', class: 'close', onclick: () => this.dialog.close() }, 'Close')),
      h('div', { class: 'inside' }, this.identity, this.plot, h('h3', {}, 'Fields'), h('p', { class: 'tools' }, this.filter, this.note), this.fields, this.extra));
    this.#draw();
    this.update();
    if (!this.dialog.open) this.dialog.showModal();
    history.replaceState(null, '', `#device=${encodeURIComponent(id)}`);
    this.#ask();
  }

  #closed() {
    this.chart?.close();
    this.chart = null;
    this.id = null;
    this.app.watch([]);
    history.replaceState(null, '', location.pathname + location.search);
  }

  #draw() {
    const { app, id } = this;
    this.chart?.close();
    this.made = signature(app, id);
    const lanes = lanesOf(app, id, true);
    for (const field of this.plotted) {
      const unit = app.model.unitOf(field, this.answer?.fields.find((f) => f.name === field)?.unit);
      const all = app.model.find(id, field).slice(0, 8);
      lanes.push({ label: field, unit, height: 70, lines: (all.length ? all : [null]).map((s, i) => ({ name: s ? Object.values(s.labels).join(' ') || field : field, series: () => s, colour: `line-${i}`, style: 'line' })) });
    }
    this.chart = new Chart(app, { lanes, events: () => app.eventsOf(id), name: nameOf(app.model.devices.get(id), app.model) });
    this.plot.replaceChildren(this.chart.element);
  }

  update() {
    const { app, id } = this;
    if (!id) return;
    const d = app.model.devices.get(id);
    if (!d) return;
    const missing = this.plotted.some((f) => app.model.find(id, f).length) && this.generation !== app.model.generation;
    if (this.made !== signature(app, id) || missing) {
      this.generation = app.model.generation;
      this.#draw();
    }
    const { word, why } = d.status;
    put(this.state, `${sign(word)} ${word}${why ? `: ${why}` : ''}`);
    this.state.className = `state ${level(word)}`;
    const parent = d.parent && app.model.devices.get(d.parent), instance = d.instance || {};
    const facts = [
      ['Model', d.model], ['UUID', d.uuid], ['PCI address', d.pci_bus_id], ['Device file', d.device], ['Part of', parent && nameOf(parent, app.model)],
      ['Profile', instance.profile], ['Instance', [instance.id, instance.compute_id].filter((x) => x !== undefined).join('/')], ['Instance UUID', instance.uuid],
      ['Collector', d.collector], ['Session since', d.session && date(Date.parse(d.session))], [`${d.state} since`, d.since && date(Date.parse(d.since))],
      ['Sampled every', d.interval_seconds && seconds(d.interval_seconds)], ['Used by', usersOf(d).join(', ')],
      ...Object.entries(d.facts || {}), ...Object.entries(d.labels || {}),
    ].filter(([, v]) => v);
    replace(this.identity, JSON.stringify(facts), () => facts.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));
    const processes = processRows([d], app.model), events = app.eventsOf(id).slice(-20).reverse();
    replace(this.extra, JSON.stringify([processes, events]), () => [
      ...(processes.length ? [h('h3', {}, 'Processes'), table(PROCESS_COLUMNS, processes, 'Processes of this device')] : []),
      ...(events.length ? [h('h3', {}, 'Events'), eventTable(app, events)] : []),
    ]);
    this.chart?.update();
  }

  async #ask() {
    const { app, id } = this;
    if (!id || this.asking || !app.link.up || document.hidden) return;
    if (app.view.end !== null && this.answer) return; // frozen
    this.asking = true;
    try {
      const answer = await app.link.get('fields', { device: id });
      if (this.id !== id) return;
      this.answer = (answer.devices || []).find((d) => d.id === id) || {};
      this.answer.fields ||= [];
      this.#rows();
    } catch (error) {
      put(this.note, error.message);
    } finally {
      this.asking = false;
    }
  }

  #rows() {
    if (!this.answer) return;
    const wanted = this.filter.value.toLowerCase().trim(), { fields } = this.answer;
    const shown = fields.filter((f) => !wanted || `${f.name} ${f.metric || ''} ${f.help || ''}`.toLowerCase().includes(wanted));
    put(this.note, `${shown.length} of ${fields.length}; ${fields.filter((f) => f.absent).length} without a value${this.app.view.end === null ? '' : '; frozen: values are of when you froze'}`);
    const key = shown.map((f) => `${f.name}${JSON.stringify(f.labels || {})}${!f.absent}`).join();
    if (replace(this.fields, key + this.plotted, () => this.#table(shown))) this.cells = [...this.fields.querySelectorAll('tbody tr')];
    shown.forEach((f, i) => { // only the parts that change with each answer
      const [, value, , , age] = this.cells[i].children;
      put(value, this.app.model.devices.get(this.id)?.facts?.[f.name] ?? valueText(f, this.app.model));
      put(age, f.absent ? '' : seconds(f.age_seconds));
    });
  }

  #table(fields) {
    const rows = fields.map((f) => [
      h('span', { title: f.help || '' }, h('span', { class: 'field' }, f.name),
        ...Object.entries(f.labels || {}).map(([n, v]) => h('span', { class: 'label' }, `${n}=${v}`)), h('span', { class: 'help' }, f.help || '')),
      '', f.window_seconds ? seconds(f.window_seconds) : '–', f.interval_seconds ? seconds(f.interval_seconds) : '–', '',
      f.type === 'label' || f.absent ? '' : h('button', { type: 'button', class: 'text', 'aria-pressed': String(this.plotted.includes(f.name)), 'aria-label': `Plot ${f.name}`, onclick: () => this.#toggle(f.name) }, this.plotted.includes(f.name) ? 'unplot' : 'plot'),
    ]);
    return table([['Field', 'wrap'], ['Value', 'n wrap'], ['Averaged over', 'n'], ['Read every', 'n'], ['Age', 'n'], ['Plot']], rows, 'Fields of this device');
  }

  async #toggle(name) {
    const { app, id } = this;
    this.plotted = this.plotted.includes(name) ? this.plotted.filter((f) => f !== name) : [...this.plotted, name].slice(-6);
    app.watch(this.plotted);
    if (this.plotted.includes(name)) await app.fill(id, name, NaN);
    if (this.id !== id) return;
    this.#rows();
    this.#draw();
    this.chart.update();
  }
}

function valueText(f, model) {
  if (f.absent) return absence(f.absent);
  const unit = model.unitOf(f.name, f.unit);
  return amount(f.value * factor(f.unit, unit), unit === f.unit ? plainUnit(f.unit) : unit);
}
