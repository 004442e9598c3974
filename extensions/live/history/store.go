package history

import (
	"math"
	"strings"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Limits of a chunk. It ends with its span of time, so that age is bounded well, and with
// its size, so that little is dropped at a time.
const (
	chunksPerAge = 8
	largestChunk = 1024
	leastChunk   = 128
	largestStep  = 24 // bytes that a sample can add
)

// What a series and a chunk take in addition to encoded samples, about: structures, entries
// of tables, text of the key. A test compares it with the heap.
const (
	seriesBytes = 512
	chunkBytes  = 80
	// bytesPerSeries limits the number of series: so much of the limit is there for each.
	bytesPerSeries = 1024
)

// key tells series apart.
type key struct {
	device   string
	field    field.ID
	labels   string
	buffered bool
}

func keyOf(device string, c *collector.Column) key {
	k := key{device: device, field: c.Field, buffered: c.Buffer > 0}
	if len(c.Labels) > 0 {
		var b strings.Builder
		for _, l := range c.Labels {
			b.WriteString(l.Name)
			b.WriteByte(0)
			b.WriteString(l.Value)
			b.WriteByte(0)
		}
		k.labels = b.String()
	}
	return k
}

// series is the samples of one series, times ascending.
type series struct {
	key
	labels []collector.Label
	sealed []*chunk
	open   *chunkenc.XORChunk // nil: none
	to     chunkenc.Appender
	from   int64 // ms, of the first sample in open
	size   int   // bytes that open takes
	last   int64 // ms, of the newest sample
	value  int64 // ms, of the newest that is not blank
	gone   bool  // it is not in the store any more
}

// chunk is a part of a series that does not change.
type chunk struct {
	of          *series
	data        []byte
	from, until int64 // ms, of the first and the last sample
}

// store holds the series of a History. Its lock guards all of it.
type store struct {
	limit, bytes int64
	span         int64 // ms that a chunk may hold
	series       map[key]*series
	order        []*series // as they were made; those that are gone are taken out by sweep
	fifo         []*chunk  // sealed ones, the oldest first; one without data was dropped before
	samples      uint64    // added so far
	refused      uint64    // samples of series beyond the limit
}

// chunkLimit is the size at which a chunk is sealed: smaller if there are many series, so
// that open chunks alone never use most of the memory.
func (s *store) chunkLimit() int {
	return int(min(max(s.limit/8/int64(len(s.series)+1), leastChunk), largestChunk))
}

// add appends a sample to the tap's series, which is made with the first value. A sample
// that is not newer than the last is there already if its row overlaps with the
// rows of another ring. Else the clock was set back, and newer samples are dropped.
func (s *store) add(t *tap, at int64, v float64, overlaps bool) {
	blank := math.IsNaN(v)
	if t.series == nil || t.series.gone {
		if t.series = s.series[t.key]; t.series == nil && (blank || !s.make(t)) {
			return
		}
	}
	x := t.series
	if at <= x.last && !(t.event && at == x.last) {
		if overlaps || at == x.last {
			return
		}
		s.cut(x, at)
	}
	s.append(x, at, v)
	if !blank {
		x.value = at
	}
}

// addBlock appends the samples of a driver's buffer (see collector.Buffer): pairs of a value
// and the milliseconds it stands for, oldest first. They follow those of the row before,
// unless the sum of their times has left that of the rows.
func (s *store) addBlock(t *tap, at int64, block []float64, overlaps bool) {
	sum := 0.0
	n := 0
	for ; n+1 < len(block) && block[n+1] > 0; n += 2 {
		sum += block[n+1]
	}
	if n == 0 || sum > float64(maxAhead.Milliseconds()) {
		return
	}
	now := float64(at)
	if end := t.end + sum; end > now || end < now-maxBufferLag {
		t.end = now - sum
	}
	for i := 0; i < n; i += 2 {
		t.end += block[i+1]
		if t.series != nil && int64(t.end) <= t.series.last && at > t.series.last {
			continue // rounded to the same millisecond
		}
		s.add(t, int64(t.end), block[i], overlaps)
	}
}

// maxBufferLag is how much older than its row the newest sample of a buffer can be, ms.
const maxBufferLag = 1500

func (s *store) make(t *tap) bool {
	if int64(len(s.series)+1)*bytesPerSeries > s.limit {
		s.refused++
		return false
	}
	x := &series{key: t.key, labels: t.labels, last: math.MinInt64, value: math.MinInt64}
	s.series[t.key] = x
	s.order = append(s.order, x)
	s.bytes += seriesBytes
	t.series = x
	return true
}

func (s *store) append(x *series, at int64, v float64) {
	if x.open != nil && (at-x.from >= s.span || len(x.open.Bytes())+largestStep > s.chunkLimit()) {
		s.seal(x)
	}
	if x.open == nil {
		x.open, x.from = chunkenc.NewXORChunk(), at
		x.to, _ = x.open.Appender() // of an empty chunk: there is no error
	}
	x.to.Append(at, v)
	x.last = at
	size := cap(x.open.Bytes())
	s.bytes += int64(size - x.size)
	x.size = size
	s.samples++
}

// seal ends the open chunk.
func (s *store) seal(x *series) {
	if x.open == nil {
		return
	}
	c := &chunk{of: x, data: append([]byte(nil), x.open.Bytes()...), from: x.from, until: x.last}
	x.sealed = append(x.sealed, c)
	s.fifo = append(s.fifo, c)
	s.bytes += int64(len(c.data)) + chunkBytes - int64(x.size)
	x.open, x.to, x.size = nil, nil, 0
}

// forget drops the oldest chunks while they end before a time, or there is too much.
func (s *store) forget(before int64) {
	for len(s.fifo) > 0 && (s.fifo[0].data == nil || s.fifo[0].until < before || s.bytes > s.limit) {
		if c := s.fifo[0]; c.data != nil {
			c.of.sealed = c.of.sealed[1:] // the array is given up with the next append that needs another
			s.bytes -= int64(len(c.data)) + chunkBytes
			c.data = nil
		}
		s.fifo[0] = nil
		s.fifo = s.fifo[1:]
	}
}

// cut drops the samples of a series from a time on.
func (s *store) cut(x *series, from int64) {
	s.seal(x)
	n := len(x.sealed)
	for n > 0 && x.sealed[n-1].from >= from {
		n--
		s.bytes -= int64(len(x.sealed[n].data)) + chunkBytes
		x.sealed[n].data = nil
	}
	x.sealed = x.sealed[:n]
	x.last = math.MinInt64
	if n > 0 {
		c := x.sealed[n-1]
		if c.until >= from {
			s.bytes -= int64(len(c.data))
			c.data, c.until = upTo(c.data, from)
			s.bytes += int64(len(c.data))
		}
		x.last = c.until
	}
	x.value = min(x.value, x.last)
}

// upTo encodes the samples before a time again.
func upTo(data []byte, before int64) (out []byte, last int64) {
	kept := chunkenc.NewXORChunk()
	to, _ := kept.Appender() // of an empty chunk: there is no error
	for at, v := range decode(data) {
		if at >= before {
			break
		}
		to.Append(at, v)
		last = at
	}
	return append([]byte(nil), kept.Bytes()...), last // the first sample is before
}

// sweep seals chunks that have not grown since idle, and forgets series without a value since
// gone. Samples later than ahead are from before the clock was set back.
func (s *store) sweep(idle, gone, ahead int64) {
	kept := s.order[:0]
	for _, x := range s.order {
		if x.last > ahead {
			s.cut(x, ahead)
		}
		if x.last < idle {
			s.seal(x)
		}
		if x.value >= gone && (x.open != nil || len(x.sealed) > 0) {
			kept = append(kept, x)
			continue
		}
		s.cut(x, math.MinInt64)
		s.bytes -= seriesBytes
		x.gone = true
		delete(s.series, x.key)
	}
	clear(s.order[len(kept):])
	s.order = kept
}
