// The samples of one series, in time order.

// LIMIT is the approximate maximum of samples in a ring: 15 minutes at up to 18 a second.
const LIMIT = 16384;

// KEPT is how long samples are kept, in ms.
export const KEPT = 15 * 60 * 1000;

// A Ring keeps the newest samples. A blank sample is NaN.
export class Ring {
  constructor() { this.clear(); }

  get length() { return this.times.length; }
  get first() { return this.length ? this.times[0] : NaN; }
  get last() { return this.length ? this.times[this.length - 1] : NaN; }
  get newest() { return this.length ? this.values[this.length - 1] : NaN; }
  time(i) { return this.times[i]; }
  value(i) { return this.values[i]; }

  // clear removes all samples.
  clear() {
    this.times = [];
    this.values = [];
  }

  // push appends a sample. It drops one that is not newer than the last.
  push(t, v) {
    if (t <= this.last) return false;
    this.times.push(t);
    this.values.push(v);
    this.#trim();
    return true;
  }

  // #trim removes excess or old samples, an eighth at a time.
  #trim() {
    if (this.length < LIMIT * 1.125 && this.last - this.first < KEPT * 1.125) return;
    const n = Math.max(this.length - LIMIT, this.from(this.last - KEPT));
    this.times = this.times.slice(n);
    this.values = this.values.slice(n);
  }

  // merge inserts samples between those of the ring. At equal times the ring's sample stays.
  merge(times, values) {
    const all = new Map(times.map((t, i) => [t, values[i]]));
    this.times.forEach((t, i) => all.set(t, this.values[i]));
    this.times = [...all.keys()].sort((a, b) => a - b);
    this.values = this.times.map((t) => all.get(t));
    this.#trim();
  }

  // from returns the index of the first sample that is not older than t.
  from(t) {
    let low = 0, high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle] < t) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // at returns the index of the newest sample that is not newer than t, or -1.
  at(t) {
    const i = this.from(t);
    return this.times[i] === t ? i : i - 1;
  }

  // max returns the highest value in a span, or 0 without samples.
  max(from, until) {
    let max = 0;
    for (let i = this.from(from); i < this.length && this.times[i] <= until; i++) if (this.values[i] > max) max = this.values[i];
    return max;
  }
}
