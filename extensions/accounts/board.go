package accounts

import (
	"math"
	"slices"

	"warpgauge/pkg/collector"
)

// board is a GPU with its owners over time.
type board struct {
	device collector.Device
	counts meter
	spans  []span // ascending; the last one is open. Never empty
	held   int64  // until when the time of owners is counted, ns
	total  int64  // µJ of all accounts
	lost   *account

	queue       [256]sample // wait until it is known who had the board; a ring
	first, many int

	shares []float64 // scratch, by holder
	parts  []part
}

// sample is what a row says of a board. NaN is unknown.
type sample struct {
	from, until          int64
	energy, power, clock float64 // mJ; W; share of the peak
	reasons              uint64
	whole                reading
	instances            []string // IDs
	parts                []reading
}

// reading is what a row says of a board or an instance.
type reading struct {
	busy, tensor, memory float64 // 0 to 1; 0 to 1; bytes
}

// push returns the sample to fill. If the queue is full, the oldest one does not wait any longer.
func (b *board) push() *sample {
	if b.many == len(b.queue) {
		b.commit(b.queue[b.first].until)
	}
	b.many++
	return &b.queue[(b.first+b.many-1)%len(b.queue)]
}

// commit counts the samples until a time.
func (b *board) commit(until int64) {
	for b.many > 0 && b.queue[b.first].until <= until {
		b.count(&b.queue[b.first])
		b.first, b.many = (b.first+1)%len(b.queue), b.many-1
	}
}

func (b *board) count(s *sample) {
	b.during(s.from, s.until, func(holders []holder, share float64, end int64) {
		b.divide(s, holders)
		for i := range holders {
			holders[i].add(share*float64(s.until-s.from)/second, end, &b.parts[i])
		}
	})
	b.countEnergy(s)
	b.forget(min(s.from, b.counts.at))
}

func (b *board) countEnergy(s *sample) {
	energy, from, source := int64(0), s.from, fromCounter
	if s.energy >= 0 {
		grown, since, lost := b.counts.advance(s.energy, s.power, s.until)
		if lost > 0 {
			b.lost.energy[fromCounter][methodWhole][stateUnknown] += lost
			b.total += lost
		}
		energy, from = grown, since
	}
	if b.counts.stuck || !b.counts.started {
		if energy, from, source = 0, s.from, fromPower; s.power > 0 {
			energy = int64(s.power * float64(s.until-s.from) / 1000)
		}
	}
	rest := energy
	b.during(from, s.until, func(holders []holder, share float64, end int64) {
		e := rest
		if end < s.until {
			e = min(rest, int64(float64(energy)*share))
		}
		if rest -= e; e > 0 {
			b.charge(holders, e, source, b.divide(s, holders))
		}
	})
}

// divide sets shares and parts for holders, and returns the method.
func (b *board) divide(s *sample, holders []holder) (method int) {
	divided, sum, known := false, 0.0, true
	for i := range holders {
		h, p := &holders[i], &b.parts[i]
		r := s.of(h.instance)
		*p = part{size: h.size, activity: r.busy, tensor: r.tensor, clock: s.clock, memory: r.memory / float64(h.among), reasons: s.reasons}
		if len(s.parts) > 0 && h.instance == "" { // the rest of a divided board
			p.activity, p.tensor, p.memory = 0, 0, 0
		}
		if h.among > 1 {
			if known = known && h.use.Busy >= 0; h.use.Busy >= 0 {
				p.activity, p.memory = min(h.use.Busy/h.size, 1), h.use.Memory
			}
		}
		divided = divided || h.instance != ""
		known = known && p.activity >= 0
		b.shares[i] = h.size * p.activity
		sum += b.shares[i]
	}
	switch {
	case len(holders) == 1:
		b.shares[0] = 1
		return methodWhole
	case known && sum > 0:
		for i := range holders {
			b.shares[i] /= sum
		}
		return methodActivity
	case divided:
		method = methodSlices
	default:
		method = methodEqual
	}
	for i := range holders {
		b.shares[i] = holders[i].size
	}
	return method
}

// of returns the reading of an instance, or of the board.
func (s *sample) of(instance string) *reading {
	if i := slices.Index(s.instances, instance); i >= 0 {
		return &s.parts[i]
	}
	return &s.whole
}

// span is a time with the same owners.
type span struct {
	from    int64
	holders []holder
}

// holder is an owner that has a board, an instance of it, or a share of either.
type holder struct {
	*account
	instance string  // ID of the MIG instance or partition; "" for the board
	size     float64 // of the board
	among    int     // owners that share the board or the instance
}

// maxSpans bounds the spans that wait for the rows of their time.
const maxSpans = 64

func (b *board) now() *span { return &b.spans[len(b.spans)-1] }

// hold counts the time of the present owners.
func (b *board) hold(until int64) {
	if until <= b.held {
		return
	}
	for _, h := range b.now().holders {
		h.held += float64(until-b.held) / second * h.size
	}
	b.held = until
}

// during calls f with the holders of each span in [from, to], and the part of that time which the span covers. What is before the
// first span belongs to it.
func (b *board) during(from, to int64, f func(holders []holder, part float64, until int64)) {
	if to <= from {
		f(b.now().holders, 1, to)
		return
	}
	for i := range b.spans {
		begin, end := max(from, b.spans[i].from), to
		if i == 0 {
			begin = from
		}
		if i+1 < len(b.spans) {
			end = min(end, b.spans[i+1].from)
		}
		if end > begin {
			f(b.spans[i].holders, float64(end-begin)/float64(to-from), end)
		}
	}
}

// forget drops spans that ended before the time.
func (b *board) forget(before int64) {
	n := 0
	for n+1 < len(b.spans) && (b.spans[n+1].from <= before || len(b.spans)-n > maxSpans) {
		n++
	}
	b.spans = append(b.spans[:0], b.spans[n:]...)
}

// charge divides µJ among holders by their shares, which add up to 1. The last one has the rest, so that nothing is lost.
func (b *board) charge(holders []holder, energy int64, source, method int) {
	rest := energy
	for i := range holders {
		e := rest
		if i+1 < len(holders) {
			e = int64(math.Floor(float64(energy) * b.shares[i]))
		}
		rest -= e
		holders[i].energy[source][method][b.parts[i].state()] += e
	}
	b.total += energy
}
