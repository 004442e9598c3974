// The page's knowledge of fields: the roles that it shows, units, and the format of values. The
// exporter maps fields to roles, for any vendor.

// Each role has a label and the unit that the page uses. A role with many has several series.
export const ROLES = {
  activity: { label: 'GPU', unit: '%' },
  sm_activity: { label: 'SM', unit: '%' },
  tensor_activity: { label: 'Tensor', unit: '%' },
  memory_activity: { label: 'DRAM', unit: '%' },
  power: { label: 'Power', unit: 'W' },
  power_limit: { label: 'Power limit', unit: 'W' },
  temperature: { label: 'GPU', unit: '°C' },
  memory_temperature: { label: 'Memory', unit: '°C' },
  slowdown_temperature: { label: 'slows down at', unit: '°C' },
  shutdown_temperature: { label: 'shuts down at', unit: '°C' },
  clock: { label: 'SM', unit: 'MHz' },
  memory_clock: { label: 'Memory', unit: 'MHz' },
  max_clock: { label: 'Highest SM clock', unit: 'MHz' },
  clock_events: { label: 'Clock events', unit: '' },
  throttling: { label: 'Throttling', unit: '', many: true },
  memory_used: { label: 'Memory', unit: 'GiB' },
  memory_free: { label: 'Free', unit: 'GiB' },
  memory_reserved: { label: 'Reserved', unit: 'GiB' },
  memory_total: { label: 'Total', unit: 'GiB' },
  link_throughput: { label: 'NVLink or XGMI', unit: 'bytes/s' },
};

const FACTORS = { 'ratio>%': 100, 'MiB>GiB': 1 / 1024, 'bytes>GiB': 1 / 2 ** 30, 'Hz>MHz': 1e-6, 'kHz>MHz': 1e-3, 'MB/s>bytes/s': 1e6, 'KB/s>bytes/s': 1e3 };

// factor returns the multiplier from one unit to another. It is 1 if they are equal or unrelated.
export const factor = (from, to) => FACTORS[`${from}>${to}`] ?? 1;

// plainUnit returns a catalogue unit for people.
export const plainUnit = (unit) => ({ celsius: '°C', bool: '' })[unit] ?? unit ?? '';

const formats = new Map();

// number formats a number with a number of decimals and thin thousands separators.
export function number(v, decimals = 0) {
  if (v === null || v === undefined || v !== v) return '–';
  let f = formats.get(decimals);
  if (!f) formats.set(decimals, f = new Intl.NumberFormat('en-US', { minimumFractionDigits: decimals, maximumFractionDigits: decimals }));
  return f.format(v);
}

const steps = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];

// amount formats a value with its unit and about three digits.
export function amount(v, unit) {
  if (v === null || v === undefined || v !== v) return '–';
  if (unit === 'bytes' || unit === 'bytes/s') {
    const s = unit === 'bytes' ? 'B' : 'B/s';
    for (const [n, prefix] of steps) if (Math.abs(v) >= n) return `${number(v / n, v / n < 10 ? 2 : v / n < 100 ? 1 : 0)} ${prefix}${s}`;
    return `${number(v)} ${s}`;
  }
  const text = Math.abs(v) < 1000 && !Number.isInteger(v) ? Number(v.toPrecision(4)).toString() : number(v);
  return unit ? `${text} ${unit}` : text;
}

// seconds formats a duration.
export function seconds(s) {
  if (s === null || s === undefined || s !== s) return '–';
  if (s < 0) s = 0;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${Math.round(s * 10) / 10} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

const decimals = { '%': 0, W: 0, '°C': 0, MHz: 0, GiB: 1 };

// reading formats a value in the unit of a role.
export const reading = (v, unit) => v !== v ? '–' : unit in decimals ? `${number(v, decimals[unit])} ${unit}` : amount(v, unit);

// clock formats the time of day of a time in ms, with tenths on request.
const times = [undefined, 1].map((n) => new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: n }));
export const clock = (ms, tenths = false) => times[Number(tenths)].format(ms);

// date formats a day and time for this browser.
export const date = (ms) => new Date(ms).toLocaleString('sv');

// Bits of NVML's nvmlClocksEventReason…; bad ones slow down a busy GPU.
const REASONS = [
  [0x1, 'idle', false], [0x2, 'application clocks', false], [0x4, 'power cap', false], [0x8, 'hardware slowdown', true],
  [0x10, 'sync boost', false], [0x20, 'thermal slowdown', true], [0x40, 'hardware thermal slowdown', true],
  [0x80, 'power brake', true], [0x100, 'display clocks', false],
];

// reasons returns the set bits of a mask: [{text, bad}].
export function reasons(mask) {
  const out = [];
  let rest = mask;
  for (const [bit, text, bad] of REASONS) {
    if (mask & bit) out.push({ text, bad });
    rest &= ~bit;
  }
  if (rest) out.push({ text: `0x${rest.toString(16)}`, bad: false });
  return out;
}

// absence formats the reason for a missing value.
export const absence = (a) => a ? a.detail || a.reason.replaceAll('_', ' ') : '';
