// The sections besides the tiles: summary, comparison, processes, events.

import { Chart } from './chart.js';
import { h, put, replace, show, sign } from './dom.js';
import { ROLES, amount, clock, date, number, reading, seconds, statsText } from './fields.js';
import { nameOf } from './model.js';

// section gives a section of the page a heading, a note and a body.
export function section(element, title, note) {
  const body = h('div');
  element.append(h('h2', { id: `${element.id}-title` }, title), note ? h('p', { class: 'note' }, note) : '', body);
  return body;
}

// Summary shows the node's activity and all its problems.
export class Summary {
  constructor(app, element) {
    this.app = app;
    this.element = element;
    this.facts = h('dl', { class: 'facts' });
    this.problems = h('ul', { class: 'problems', 'aria-label': 'What is wrong' });
    element.append(this.facts, h('div', { role: 'status' }, this.problems));
  }

  update() {
    const { app } = this, { model } = app, t = app.time(), tiles = model.tiles(), gpus = tiles.filter((d) => d.kind === 'gpu');
    const sum = (role) => {
      const known = gpus.map((d) => model.value(d.id, role, t)).filter((v) => v === v);
      return { n: known.length, sum: known.reduce((a, b) => a + b, 0) };
    };
    const up = gpus.filter((d) => d.state === 'up').length, facts = [['GPUs', up === gpus.length ? `${up} up` : `${up} of ${gpus.length} up`]];
    if (tiles.length > gpus.length) facts.push(['Instances', `${tiles.length - gpus.length}`]);
    const util = sum('activity'), power = sum('power'), limit = sum('power_limit'), used = sum('memory_used'), of = (x) => x.n < gpus.length ? ` (${x.n} of ${gpus.length})` : '';
    if (util.n) facts.push(['Mean utilisation', `${number(util.sum / util.n)} %${of(util)}`]);
    if (power.n) facts.push(['Power', `${power.sum >= 1e4 ? `${number(power.sum / 1000, 1)} kW` : `${number(power.sum)} W`}${limit.n === power.n ? ` of ${number(limit.sum)} W` : ''}${of(power)}`]);
    if (used.n) facts.push(['Memory in use', `${number(used.sum, 0)} GiB${of(used)}`]);
    facts.push(['Sampled every', seconds(Math.min(...gpus.map((d) => d.interval_seconds || Infinity), 60))]);
    if (app.list?.source) facts.push(['Field list', app.list.source]);
    replace(this.facts, JSON.stringify(facts), () => facts.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));

    const problems = model.problems();
    for (const reason of model.health?.reasons || []) if (!problems.some((p) => reason.includes(p.reason) && p.reason)) problems.push({ text: reason, reason: '', bad: !model.health.ready });
    if (app.list?.last_error) problems.push({ text: 'The last reload of the field list failed', reason: app.list.last_error, bad: true });
    const server = app.list?.remote;
    if (server?.status === 'refused' || server?.status === 'failed') problems.push({ text: `The list of the server is not in service (${server.status})`, reason: [server.text, ...(server.refused || []).slice(0, 5).map((r) => (r.line ? `line ${r.line}: ` : '') + r.text)].filter((text, i, all) => text && all.indexOf(text) === i).join('; '), bad: true });
    replace(this.problems, JSON.stringify(problems), () => problems.map((p) => h('li', { class: p.bad ? 'bad' : 'warn' },
      h('span', { 'aria-hidden': 'true' }, sign(p.bad ? 'failed' : 'degraded')), ' ',
      p.device && tiles.some((d) => d.id === p.device) ? h('button', { type: 'button', class: 'text', onclick: () => app.openDetail(p.device) }, p.text) : p.text,
      p.reason ? `: ${p.reason}` : '', p.since ? h('span', { class: 'muted' }, ` since ${clock(Date.parse(p.since))}`) : '')));
    show(this.problems, problems.length > 0);
    show(this.element, gpus.length > 0 || problems.length > 0);
  }
}

const COMPARED = {
  activity: 'Utilisation', tensor_activity: 'Tensor activity', memory_activity: 'DRAM activity', power: 'Power', temperature: 'Temperature', clock: 'SM clock',
  memory_used: 'Memory in use', link_throughput: 'NVLink or XGMI',
};

// Comparison draws one reading of several devices in one chart.
export class Comparison {
  constructor(app, element) {
    Object.assign(this, { app, element });
    this.role = h('select', { name: 'reading', 'aria-label': 'Reading', onchange: () => this.update() }, Object.entries(COMPARED).map(([r, text]) => h('option', { value: r }, text)));
    this.plot = h('div');
    section(element, 'Comparison').append(this.role, this.plot);
  }

  update() {
    const { app } = this, { view, model } = app, role = this.role.value, { unit } = ROLES[role];
    show(this.element, app.comparing);
    if (!app.comparing) return;
    replace(this.plot, [role, ...app.compared].join(), () => this.#make([...app.compared], role, unit));
    this.chart?.update();
    for (const { series, value } of this.lines) {
      const stats = series()?.ring.stats(view.right() - view.span, view.right());
      put(value, stats ? `${reading(model.valueOf(series(), app.time()), unit)} (${statsText(stats, unit)})` : '–');
    }
  }

  #make(ids, role, unit) {
    const { app } = this, { model } = app;
    this.chart?.close();
    this.lines = ids.map((id, i) => ({ id, name: nameOf(model.devices.get(id) || { id }, model), value: h('span', { class: 'muted' }), series: () => model.pick(id, role), colour: `line-${i}`, style: 'line' }));
    if (!ids.length) return h('p', { class: 'note' }, 'Tick up to 8 GPUs below.');
    this.chart = new Chart(app, { lanes: [{ label: COMPARED[role], unit, max: unit === '%' ? 100 : 0, height: 180, lines: this.lines }], name: `${COMPARED[role]} of several GPUs` });
    return [this.chart.element, h('ul', { class: 'legend' }, this.lines.map(({ id, name, value }, i) => h('li', {},
      h('button', { type: 'button', class: 'text', onclick: () => app.openDetail(id) }, h('i', { class: `swatch line-${i}` }, String(i + 1)), ` ${name}`), ' ', value)))];
  }
}

// table creates a table; columns are [title, class].
export function table(columns, rows, caption) {
  return h('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': caption }, h('table', {}, h('caption', { class: 'hidden' }, caption),
    h('thead', {}, h('tr', {}, columns.map(([title, c]) => h('th', { scope: 'col', class: c }, title)))),
    h('tbody', {}, rows.map((r) => h('tr', {}, r.map((cell, i) => h('td', { class: columns[i][1] }, cell)))))));
}

// processRows returns the rows of a process table.
export function processRows(devices, model) {
  return devices.flatMap((d) => (d.processes || []).map((p) => [
    nameOf(d, model), String(p.pid), p.name || '–', p.memory_bytes === undefined ? '–' : amount(p.memory_bytes, 'bytes'),
    p.utilization_percent === undefined ? '–' : `${number(p.utilization_percent)} %`, p.pod || (p.job ? `job ${p.job}` : '–'),
  ]));
}

export const PROCESS_COLUMNS = [['Device'], ['PID', 'n'], ['Name'], ['Memory', 'n'], ['Busy', 'n'], ['Pod or job']];

export class Processes {
  constructor(app, element) {
    this.app = app;
    this.element = element;
    this.body = section(element, 'Processes');
  }

  update() {
    const { model } = this.app, rows = processRows(model.tiles(), model);
    show(this.element, model.devices.size > 0);
    replace(this.body, JSON.stringify(rows), () => rows.length ? table(PROCESS_COLUMNS, rows, 'Processes')
      : h('p', { class: 'note' }, 'No process to show: none uses a GPU, or this exporter does not read or does not show them.'));
  }
}

// Events lists events and the files of the flight recorder.
export class Events {
  constructor(app, element) {
    Object.assign(this, { app, element });
    this.list = h('div');
    this.more = h('button', { type: 'button', class: 'text', onclick: () => {
      this.all = !this.all;
      this.update();
    } });
    this.recordings = h('div');
    section(element, 'Events').append(this.list, this.more, this.recordings);
  }

  // recorded shows the recordings, newest first.
  recorded(list) {
    show(this.recordings, list.length > 0);
    replace(this.recordings, JSON.stringify(list), () => [h('h3', {}, 'Recordings'), table([['Time'], ['Cause', 'wrap'], ['Device'], ['Span', 'n'], ['File']], list.slice(0, 20).map((r) => {
      const d = this.app.model.devices.get(r.device);
      return [date(Date.parse(r.time)), r.cause.replaceAll('_', ' '), d ? nameOf(d, this.app.model) : r.device || '–', seconds((Date.parse(r.until) - Date.parse(r.from)) / 1000),
        h('a', { href: `api/v1/recordings/${encodeURIComponent(r.name)}`, download: r.name }, `${r.name} (${amount(r.bytes, 'bytes')})`)];
    }), 'Recordings')]);
  }

  update() {
    // Limit the frequent clock events, so that they do not hide an XID.
    const { app } = this, { events } = app.model, few = new Set([true, false].flatMap((bad) => events.filter((e) => !!e.bad === bad).slice(-5)));
    const shown = events.filter((e) => this.all || few.has(e)).reverse();
    show(this.element, app.model.devices.size > 0);
    replace(this.list, `${events.length} ${events.at(-1)?.t} ${this.all}`, () => shown.length ? eventTable(app, shown)
      : h('p', { class: 'note' }, 'Nothing has happened as far back as the exporter remembers.'));
    show(this.more, events.length > few.size);
    put(this.more, this.all ? 'Show the newest of each kind' : `Show all ${events.length}`);
  }
}

// eventTable lists events. Each time is a button that moves the charts there.
export function eventTable(app, events) {
  return table([['Time'], ['Kind'], ['Device'], ['What', 'wrap']], events.map((e) => [
    h('button', { type: 'button', class: 'text', title: 'Show this time', onclick: () => app.showTime(e.t) }, date(e.t)),
    h('span', { class: e.bad ? 'bad' : '' }, `${sign(e.bad ? 'failed' : 'released')} ${e.kind.replaceAll('_', ' ')}`),
    e.gpu !== undefined ? `GPU ${e.gpu}` : e.device || '–', e.text,
  ]), 'Events');
}
