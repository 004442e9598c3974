package accounts

import (
	"iter"
	"slices"
	"time"

	"warpgauge/extensions/accounts/report"
	"warpgauge/pkg/collector"
)

// board is a GPU with its owners over time.
type board struct {
	device collector.Device
	counts meter
	spans  []span    // ascending; the last one is open. Never empty
	until  int64     // until when the time of owners is counted, ns
	there  time.Time // when a View had it last
	total  int64     // µJ of all accounts
	lost   *account
	every  time.Duration  // between its rows
	absent bool           // from the View
	resume []report.Owner // who had the board when the exporter was stopped, until it is known who has it now

	queue       [256]sample // wait until the owners of their time are known; a ring
	first, many int

	shares []float64 // scratch, by holder
	parts  []part
}

// sample holds the readings of a row about a board. NaN is unknown.
type sample struct {
	from, until          int64
	energy, power, clock float64 // mJ; W; share of the peak
	reasons              uint64
	whole                reading
	instances            []string // IDs
	parts                []reading
}

// reading holds the readings of a row about a board or an instance.
type reading struct {
	busy, tensor, pipes, traffic float64 // 0 to 1
	memory, size                 float64 // bytes
}

// push returns the sample to fill. If the queue is full, the oldest one does not wait any longer, and none does if the clock was
// set back.
func (b *board) push(until int64) *sample {
	for b.many == len(b.queue) || b.many > 0 && b.queue[(b.first+b.many-1)%len(b.queue)].until > until {
		if b.resume != nil { // the counter keeps its energy
			b.first, b.many = (b.first+1)%len(b.queue), b.many-1
			continue
		}
		b.countFirst()
	}
	b.many++
	return &b.queue[(b.first+b.many-1)%len(b.queue)]
}

// commit counts the samples until a time.
func (b *board) commit(until int64) {
	for b.many > 0 && b.queue[b.first].until <= until && b.resume == nil {
		b.countFirst()
	}
}

// countFirst counts the oldest sample.
func (b *board) countFirst() {
	s := &b.queue[b.first]
	b.first, b.many = (b.first+1)%len(b.queue), b.many-1
	if s.until < b.until-int64(maxOverlap) { // the clock was set back
		b.until, b.spans = s.from, append(b.spans[:0], span{s.from, b.now().holders})
	}
	if s.until > b.until { // else another collector was ahead
		b.pass(s.from)
		from := max(s.from, b.until)
		b.during(from, s.until, func(holders []holder, share float64, end int64) {
			b.divide(s, holders)
			for i := range holders {
				holders[i].add(share*float64(s.until-from)/second, end, &b.parts[i])
			}
		})
		b.until = s.until
	}
	b.countEnergy(s)
	b.forget(min(b.until, b.counts.at))
}

// pass counts time without rows.
func (b *board) pass(until int64) {
	if until <= b.until {
		return
	}
	from := max(b.until, until-int64(maxGap))
	b.during(from, until, func(holders []holder, share float64, _ int64) {
		for _, h := range holders {
			h.spent[spentUnknown] += share * float64(until-from) / second * h.size
		}
	})
	b.until = until
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
	} else {
		b.counts.stuck = b.counts.stuck || s.until-b.counts.at > stuckAfter && s.power > 0
	}
	if b.counts.stuck || !b.counts.started {
		if energy, from, source = 0, s.from, fromPower; s.power > 0 {
			energy = int64(s.power * float64(s.until-s.from) / 1000)
		}
		b.counts.owed += energy
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
		*p = part{h.size, r.busy, r.tensor, min(r.pipes/r.busy, 1), min(r.traffic/r.busy, 1), s.clock, r.memory, r.size, s.reasons}
		if len(s.parts) > 0 && h.instance == "" { // the rest of a divided board
			*p = part{size: h.size, clock: s.clock}
		}
		if h.among > 1 {
			known = known && h.use.busy >= 0
			if h.use.busy >= 0 {
				p.activity = h.use.busy / h.size
			}
			p.memory = h.use.memory
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
			if b.shares[i] /= sum; holders[i].among > 1 && !divided {
				b.parts[i].tensor *= b.shares[i] / holders[i].size
			}
		}
		return methodActivity
	case divided:
		method = methodSlices
	default:
		method = methodEqual
	}
	for i := range holders {
		if b.shares[i] = holders[i].size; known && !divided { // what runs on the board is not theirs
			b.parts[i].tensor = 0
		}
	}
	return method
}

var noReading = reading{unknown, unknown, unknown, unknown, unknown, unknown}

// of returns the reading of an instance, or of the board.
func (s *sample) of(instance string) *reading {
	if i := slices.Index(s.instances, instance); i >= 0 {
		return &s.parts[i]
	}
	if instance != "" {
		return &noReading
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
	device   string  // ID of the board or of the instance
	instance string  // ID of the MIG instance or partition; "" for the board
	size     float64 // of the board
	among    int     // owners that share the board or the instance
}

const (
	maxOverlap = 10 * time.Minute // a row further back means that the clock was set back
	maxGap     = 24 * time.Hour   // without rows that counts as time of owners
)

// maxSpans bounds the spans that wait for the rows of their time.
const maxSpans = 64

func (b *board) now() *span { return &b.spans[len(b.spans)-1] }

// present returns each present owner once.
func (b *board) present() iter.Seq[*holder] {
	return func(yield func(*holder) bool) {
		all := b.now().holders
		for i := range all {
			if !slices.ContainsFunc(all[:i], func(o holder) bool { return o.account == all[i].account }) && !yield(&all[i]) {
				return
			}
		}
	}
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
			e = min(rest, int64(float64(energy)*b.shares[i])) // no counter goes back by a rounding
		}
		rest -= e
		holders[i].energy[source][method][b.parts[i].state()] += e
	}
	b.total += energy
}
