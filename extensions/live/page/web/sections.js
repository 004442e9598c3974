// The sections besides the tiles: summary, events.

import { h, put, replace, show, sign } from './dom.js';
import { amount, clock, date, number, seconds } from './fields.js';
import { nameOf } from './model.js';

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
    element.append(h('h2', { id: 'events-title' }, 'Events'), this.list, this.more, this.recordings);
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
