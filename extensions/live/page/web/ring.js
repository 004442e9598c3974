// Samples of one series, in the order of their times.

// LIMIT is the most samples that a ring keeps: 15 minutes at up to 18 a second.
export const LIMIT = 16384;

// KEPT is how long samples are kept, in ms.
export const KEPT = 15 * 60 * 1000;

// A Ring keeps the newest samples in typed arrays. It begins small and doubles until it
// has all of KEPT, or LIMIT; after that a new sample takes the slot of the oldest. A
// blank sample is NaN.
export class Ring {
  constructor(limit = LIMIT) {
    this.limit = limit; // a power of two
    this.length = 0;
    this.head = 0; // slot of the oldest
    this.epoch = 0; // grows when samples change that were there before
    this.#allocate(Math.min(64, limit));
  }

  #allocate(n) {
    const times = new Float64Array(n), values = new Float64Array(n);
    for (let i = 0; i < this.length; i++) {
      times[i] = this.time(i);
      values[i] = this.value(i);
    }
    this.times = times;
    this.values = values;
    this.head = 0;
    this.mask = n - 1;
  }

  // time and value are those of sample i; 0 is the oldest.
  time(i) { return this.times[(this.head + i) & this.mask]; }
  value(i) { return this.values[(this.head + i) & this.mask]; }

  get first() { return this.length ? this.time(0) : NaN; }
  get last() { return this.length ? this.time(this.length - 1) : NaN; }

  // clear forgets all samples.
  clear() {
    this.length = 0;
    this.epoch++;
  }

  // push appends a sample. One that is not newer than the last is dropped.
  push(t, v) {
    if (this.length && t <= this.last) return false;
    if (this.length === this.times.length) {
      if (this.length < this.limit && t - this.first <= KEPT) this.#allocate(this.length * 2);
      else {
        this.head = (this.head + 1) & this.mask;
        this.length--;
      }
    }
    const at = (this.head + this.length) & this.mask;
    this.times[at] = t;
    this.values[at] = v;
    this.length++;
    return true;
  }

  // merge adds samples, in the order of their times, that belong between those of the
  // ring. Of two with one time the ring's stays.
  merge(times, values) {
    if (!times.length) return;
    const n = this.length, t = [], v = [];
    for (let i = 0, k = 0; i < n || k < times.length;) {
      const own = i < n ? this.time(i) : Infinity, other = k < times.length ? times[k] : Infinity;
      if (own <= other) {
        t.push(own);
        v.push(this.value(i++));
        if (own === other) k++;
      } else {
        t.push(other);
        v.push(values[k++]);
      }
    }
    this.length = 0;
    for (let i = Math.max(0, t.length - this.limit); i < t.length; i++) this.push(t[i], v[i]);
    this.epoch++;
  }

  // from returns the index of the first sample that is not older than t.
  from(t) {
    let low = 0, high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.time(middle) < t) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // at returns the index of the newest sample that is not newer than t, or -1.
  at(t) {
    const i = this.from(t);
    return i < this.length && this.time(i) === t ? i : i - 1;
  }

  // rate is the increase a second up to time t, of a counter; NaN if it is not known or
  // the counter went back.
  rate(t) {
    const i = this.at(t);
    if (i < 1) return NaN;
    const by = this.value(i) - this.value(i - 1);
    return by >= 0 ? by / (this.time(i) - this.time(i - 1)) * 1000 : NaN;
  }

  // stats are minimum, maximum, mean and number of the samples within a span.
  stats(from, until) {
    let min = Infinity, max = -Infinity, sum = 0, n = 0;
    for (let i = this.from(from); i < this.length && this.time(i) <= until; i++) {
      const v = this.value(i);
      if (v !== v) continue;
      if (v < min) min = v;
      if (v > max) max = v;
      sum += v;
      n++;
    }
    return n ? { min, max, mean: sum / n, n } : null;
  }
}
