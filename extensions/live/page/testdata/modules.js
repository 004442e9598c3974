// Tests of the page's modules, run by TestBrowserModules. Each returns what is wrong.

import { Ring } from '../page/ring.js';
import { absence, amount, factor, number, plainUnit, reasons, seconds } from '../page/fields.js';
import { Clock, Model, nameOf } from '../page/model.js';
import { Chart, View, nice, ticks } from '../page/chart.js';

const wrong = [];
let name = '';
const equal = (got, want, what = '') => {
  if (!Object.is(got, want) && JSON.stringify(got) !== JSON.stringify(want)) wrong.push(`${name}: ${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
};

// listed is a model with a list as the exporter describes it.
const listed = () => {
  const m = new Model(), field = (name, ...roles) => ({ name, roles: roles.map(([role, rank, label]) => ({ role, rank, label })) });
  m.setList({ fields: [
    field('DCGM_FI_DEV_GPU_UTIL', ['activity', 0]), field('DCGM_FI_DEV_GPU_UTIL_RATIO', ['activity', 0]), field('DCGM_FI_PROF_GR_ENGINE_ACTIVE', ['activity', 1]),
    field('DCGM_FI_PROF_DRAM_ACTIVE', ['memory_activity', 0]), field('DCGM_FI_DEV_FB_USED', ['memory_used', 0]), field('DCGM_FI_DEV_SM_CLOCK_HERTZ', ['clock', 0]),
    field('amd_gpu_temperature_celsius', ['temperature', 10, 'edge'], ['temperature', 11, 'junction'], ['memory_temperature', 12, 'mem']),
    field('amd_gpu_memory_used_bytes', ['memory_used', 10, 'vram']), field('amd_gpu_throttle_active', ['throttling', 10, '*']),
    field('DCGM_FI_DEV_FAN_SPEED'), field('DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION', ['energy', 0]), field('new_gpu_thing', ['a role of a newer exporter', 0]),
  ] });
  return m;
};

const tests = {
  ringKeepsOrderAndBound() {
    const r = new Ring();
    for (let t = 1; t <= 40000; t++) r.push(t, t * 2);
    equal([r.length >= 16384 && r.length <= 18432, r.last, r.newest, r.value(0)], [true, 40000, 80000, r.first * 2], 'bound and ends');
    equal([r.push(40000, 5), r.push(900, 5)], [false, false], 'samples that are not newer');
    equal([r.from(39900), r.from(39899.5), r.from(0), r.from(50000)], [39900 - r.first, 39900 - r.first, 0, r.length], 'from');
    equal([r.at(39900), r.at(39900.5), r.at(5)], [39900 - r.first, 39900 - r.first, -1], 'at');
    const old = new Ring();
    for (let t = 0; t < 7200; t++) old.push(t * 1000, 1); // two hours
    equal(old.length >= 900 && old.length < 1024, true, `${old.length} samples of 15 minutes`);
  },
  ringMergesAGap() {
    const r = new Ring();
    for (const t of [1, 2, 3, 8, 9]) r.push(t, t);
    r.merge([2, 4, 5, 6, 7, 8], [-1, 4, 5, 6, 7, -1]);
    equal([...Array(r.length).keys()].map((i) => [r.time(i), r.value(i)]), [1, 2, 3, 4, 5, 6, 7, 8, 9].map((t) => [t, t]), 'samples');
    r.merge([], []);
    equal(r.length, 9, 'nothing merged');
  },
  ringMax() {
    const r = new Ring();
    [[1, 4], [2, NaN], [3, 8], [9, 100]].forEach(([t, v]) => r.push(t, v));
    equal([r.max(0, 5), r.max(4, 5)], [8, 0], 'highest');
  },
  units() {
    const m = listed();
    equal(factor('ratio', m.unitOf('DCGM_FI_PROF_DRAM_ACTIVE', 'ratio')), 100, 'ratio');
    equal(factor('bytes', m.unitOf('amd_gpu_memory_used_bytes', 'bytes')) * 2 ** 30, 1, 'bytes');
    equal(factor('MiB', 'GiB') * 1024, 1, 'MiB');
    equal(factor('Hz', m.unitOf('DCGM_FI_DEV_SM_CLOCK_HERTZ', 'Hz')) * 1e6, 1, 'Hz');
    equal([m.unitOf('DCGM_FI_DEV_FAN_SPEED', '%'), m.unitOf('new_gpu_thing', 'W')], ['%', 'W'], 'no role');
    equal([m.unitOf('x', 'celsius'), plainUnit('celsius')], ['°C', '°C'], 'celsius');
  },
  texts() {
    equal([amount(1234567, 'bytes'), amount(0, 'bytes/s'), amount(2.5e10, 'bytes/s')], ['1.23 MB', '0 B/s', '25.0 GB/s'], 'bytes');
    equal([amount(59.177, '%'), amount(3, ''), amount(12345.6, 'W'), amount(NaN, 'W'), amount(0.00012, '')], ['59.18 %', '3', '12,346 W', '–', '0.00012'], 'amounts');
    equal([number(NaN), number(undefined), number(0), number(1980)], ['–', '–', '0', '1,980'], 'unknown is no 0');
    equal([seconds(0.2), seconds(3), seconds(90), seconds(600), seconds(8000), seconds(1e6), seconds(NaN)], ['200 ms', '3 s', '90 s', '10 min', '2 h', '12 d', '–'], 'durations');
    equal(reasons(0x4 | 0x20).map((r) => [r.text, r.bad]), [['power cap', false], ['thermal slowdown', true]], 'clock_events');
    equal(reasons(0x1000)[0].text, '0x1000', 'an unknown bit');
    equal([absence({ reason: 'permission' }), absence({ reason: 'x', detail: 'y' }), absence({ reason: 'not_due' })], ['permission', 'y', 'not due'], 'absence');
  },
  modelTakesRows() {
    const m = listed();
    m.setDevices({ devices: [{ id: 'a', kind: 'gpu', gpu: '0', state: 'up', interval_seconds: 1 }, { id: 'a/1', kind: 'instance', parent: 'a', gpu: '0', state: 'up', instance: { profile: '1g.10gb', id: '7' } }] });
    m.setColumns({ columns: [{ device: 'a', field: 'DCGM_FI_PROF_DRAM_ACTIVE', unit: 'ratio' }, { device: 'a', field: 'DCGM_FI_DEV_GPU_UTIL', unit: '%' }] });
    m.takeRows({ rows: [{ t: 1000, first: 0, v: [0.5, null] }, { t: 1100, first: 1, v: [7] }] });
    equal([m.value('a', 'memory_activity', 1500), m.value('a', 'activity', 1500), m.value('a', 'power', 1500)], [50, 7, NaN], 'values');
    equal(m.value('a', 'memory_activity', 9000), NaN, 'a value that is too old');
    equal(m.pick('a', 'power'), null, 'a role without a series');
    m.takeRows({ rows: [{ t: 2000, first: 1, v: [null] }] });
    equal(m.value('a', 'activity', 2100), 7, 'not read, but none was due');
    m.takeRows({ rows: [{ t: 3000, first: 1, v: [null] }] });
    equal(m.value('a', 'activity', 3100), NaN, 'blank when one was due');
    equal(m.tiles().map((d) => nameOf(d, m)), ['GPU 0', 'GPU 0 · 1g.10gb #7'], 'tiles');
    m.takeRows({ rows: null });
    m.setColumns({ columns: null });
  },
  modelPrefersWhatHasValues() {
    const m = listed();
    m.setDevices({ devices: [{ id: 'a', kind: 'gpu', state: 'up' }] });
    m.setColumns({ columns: [{ device: 'a', field: 'DCGM_FI_DEV_GPU_UTIL', unit: '%' }, { device: 'a', field: 'DCGM_FI_PROF_GR_ENGINE_ACTIVE', unit: 'ratio' }] });
    m.takeRows({ rows: [{ t: 1, first: 0, v: [null, 0.25] }] });
    equal(m.value('a', 'activity', 2), 25, 'the second name');
    m.setColumns({ columns: [{ device: 'a', field: 'DCGM_FI_DEV_GPU_UTIL_RATIO', unit: 'ratio' }] });
    m.takeRows({ rows: [{ t: 2, first: 0, v: [0.75] }] });
    equal(m.value('a', 'activity', 3), 75, 'the newer generation of names');
  },
  modelTakesAnyVendorsNames() {
    const m = listed(), column = (field, unit, ...labels) => ({ device: 'a', field, unit, labels: labels.length ? { x: labels[0] } : undefined });
    m.setDevices({ devices: [{ id: 'a', kind: 'gpu', state: 'up' }] });
    equal(m.wanted().length, 9, 'names with a role');
    m.setColumns({ columns: [
      column('amd_gpu_temperature_celsius', 'celsius', 'vrsoc'), column('amd_gpu_temperature_celsius', 'celsius', 'junction'), column('amd_gpu_temperature_celsius', 'celsius', 'mem'),
      column('amd_gpu_memory_used_bytes', 'bytes', 'gtt'), column('amd_gpu_memory_used_bytes', 'bytes', 'vram'),
      column('amd_gpu_throttle_active', 'bool', 'power'), column('amd_gpu_throttle_active', 'bool', 'thermal'),
    ] });
    m.takeRows({ rows: [{ t: 1, first: 0, v: [90, 61, 52, 1, 2 ** 31, 1, 0] }] });
    equal(['temperature', 'memory_temperature', 'memory_used'].map((r) => m.value('a', r, 2)), [61, 52, 2], 'values');
    equal(m.pick('a', 'throttling').map((s) => s.labels.x), ['power', 'thermal'], 'a role with many');
  },
  modelFillsGaps() {
    const m = listed();
    m.setDevices({ devices: [{ id: 'a', kind: 'gpu', state: 'up' }] });
    m.setColumns({ columns: [{ device: 'a', field: 'DCGM_FI_DEV_FB_USED', unit: 'MiB' }] });
    m.takeRows({ rows: [{ t: 10000, first: 0, v: [1024] }] });
    m.takeSamples({ device: 'a', field: 'DCGM_FI_DEV_FB_USED', unit: 'MiB', series: [{ times: [8000, 9000, 10000], values: [2048, null, 4096] }, { buffered: true, times: [9500], values: [1] }] });
    const { ring } = m.pick('a', 'memory_used');
    equal([...Array(ring.length).keys()].map((i) => [ring.time(i), ring.value(i)]), [[8000, 2], [9000, NaN], [10000, 1]], 'samples');
    m.takeSamples({ device: 'a', field: 'DCGM_FI_DEV_FB_USED', unit: 'MiB', step: 1000, series: [{ times: [5000], min: [1024], max: [3072], mean: [2048] }] });
    equal([ring.time(0), ring.value(0), ring.time(1), ring.value(1)], [5000, 1, 5500, 3], 'lowest and highest of a span');
  },
  modelWhenTimeGoesBack() {
    const m = listed(), row = (t) => ({ rows: [{ t, first: 0, v: [5] }] });
    m.setDevices({ devices: [{ id: 'a', kind: 'gpu', state: 'up' }] });
    m.setColumns({ columns: [{ device: 'a', field: 'DCGM_FI_DEV_GPU_UTIL', unit: '%' }] });
    m.takeRows(row(100000));
    equal(m.takeRows(row(101000)), false, 'onwards');
    equal(m.takeRows(row(40000)), true, 'a clock that was set back');
    equal([m.newest, m.value('a', 'activity', 40500), m.pick('a', 'activity').ring.length], [40000, 5, 1], 'after it');
  },
  modelEvents() {
    const m = new Model(), event = (time, text) => ({ time, kind: 'xid', device: 'a', text });
    m.takeEvent(event('2026-01-01T00:00:02Z', 'second'));
    m.takeEvent(event('2026-01-01T00:00:01Z', 'first'));
    equal(m.takeEvent(event('2026-01-01T00:00:02Z', 'second')), false, 'the same again');
    equal(m.events.map((e) => e.text), ['first', 'second'], 'order');
    for (let i = 0; i < 1000; i++) m.takeEvent(event(new Date(1.8e12 + i).toISOString(), `${i}`));
    equal(m.events.length, 500, 'bound');
  },
  modelProblems() {
    const m = new Model();
    m.setDevices({ collectors: [{ name: 'dcgm', up: false, cause: 'error', reason: 'no library' }, { name: 'rocm', up: false, cause: 'no_devices', reason: 'no AMD GPU' }], devices: [{ id: 'a', kind: 'gpu', gpu: '3', state: 'lost', status: { word: 'failed', why: 'gone; action: reboot' } }, { id: 'b', kind: 'gpu', gpu: '4', state: 'up', status: { word: 'degraded', why: 'row remap pending; action: reset_gpu' } }, { id: 'c', kind: 'gpu', gpu: '5', state: 'up', status: { word: 'up' } }] });
    equal(m.problems().map((p) => `${p.text}: ${p.reason}`), ['GPU 3 is failed: gone; action: reboot', 'Collector dcgm is not up: no library', 'GPU 4 is degraded: row remap pending; action: reset_gpu'], 'problems');
    const none = new Model();
    none.setDevices({ collectors: [{ name: 'rocm', up: false, cause: 'no_devices', reason: 'no AMD GPU' }], devices: [] });
    equal(none.problems().map((p) => p.reason), ['no AMD GPU'], 'nothing for any collector');
  },
  clockFollowsTheExporter() {
    const c = new Clock();
    c.heard(5000, 1000); // the exporter's clock is 4 s ahead, and the row came at once
    c.heard(5500, 2000);
    equal(c.now(2000), 6000, 'the least delay counts');
    for (let i = 0; i < 20; i++) c.heard(3000 + i, 3000 + i); // it was set back
    equal(c.now(4000), 4000, 'a clock that was set');
    c.stopped = 123;
    equal(c.now(9), 123, 'stopped');
  },
  scales() {
    equal([nice(0), nice(0.9), nice(3), nice(650), nice(1000)], [1, 1, 3, 800, 1000], 'nice');
    equal([ticks(300000, 400), ticks(5000, 1000)], [60000, 500], 'ticks');
  },
  chartBreaksLines() {
    const ring = new Ring(), series = { ring }, view = new View({ now: () => 1000000 }, 40000);
    const chart = new Chart({ view, model: { gap: () => 3000 } }, { lanes: [{ height: 85, max: 100, lines: [{ name: 'x', series: () => series, colour: 'blue', style: 'area' }] }], name: 'x' });
    document.body.append(chart.element);
    const pieces = () => {
      chart.update();
      return chart.lanes[0].lines[0].path.getAttribute('d').split('M').slice(1);
    };
    equal(pieces(), [], 'no sample');
    for (const [t, v] of [[970000, 80], [970100, 80], [990000, 80], [990100, NaN], [990200, 50]]) ring.push(t, v);
    equal(pieces().map((p) => p.split(' ')[0]), [0.25, 0.75, 0.755].map((share) => (share * chart.picture.clientWidth).toFixed(1)), 'lines, broken by a gap and by a blank');
    ring.clear();
    for (let t = 960000; t < 1000000; t += 5) ring.push(t, t % 10 ? 20 : 60);
    const [line] = pieces();
    equal([line.length < 60 * chart.picture.clientWidth, line.includes(' 32.0L') || line.includes(' 49.0')], [true, true], `${line.length} characters of a line of 8,000 samples`);
  },
};

for (const [n, test] of Object.entries(tests)) {
  name = n;
  try {
    test();
  } catch (error) {
    wrong.push(`${n}: ${error.stack}`);
  }
}
globalThis.results = { wrong, ran: Object.keys(tests).length };
