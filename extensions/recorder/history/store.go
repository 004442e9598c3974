package history

import (
	"math"
	"strings"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Limits of a chunk. The span limit keeps the age exact; the size limit keeps each removal small.
const (
	chunksPerAge = 8
	largestChunk = 1024
	minChunk     = 128
	largestStep  = 24 // maximum bytes per sample
)

// Approximate bytes of a series and a chunk in addition to encoded samples: structures, table
// entries, key text. A test compares them with the heap.
const (
	seriesBytes = 512
	chunkBytes  = 80
	// bytesPerSeries limits the number of series: the memory limit must have that many bytes per series.
	bytesPerSeries = 1024
)

// key identifies a series.
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

// series holds the samples of one series in ascending time order.
type series struct {
	key
	labels []collector.Label
	sealed []*chunk
	open   *chunkenc.XORChunk // may be nil
	to     chunkenc.Appender
	from   int64 // time of the first sample in open, ms
	size   int   // bytes of open
	last   int64 // time of the newest sample, ms
	value  int64 // time of the newest value, ms
	gone   bool  // removed from the store
}

// chunk is an immutable part of a series.
type chunk struct {
	of          *series
	data        []byte
	from, until int64 // time of the first and last sample, ms
}

// store holds the series of a History. Its lock guards all of it.
type store struct {
	limit, bytes int64
	span         int64 // maximum span of a chunk, ms
	series       map[key]*series
	order        []*series // in order of creation; sweep removes entries that are gone
	fifo         []*chunk  // sealed chunks, oldest first; one without data was already dropped
	samples      uint64    // total added
	refused      uint64    // total beyond the series limit
}

// chunkLimit returns the size at which to seal a chunk. It shrinks with the number of series, so
// that open chunks never use most of the memory.
func (s *store) chunkLimit() int {
	return int(min(max(s.limit/8/int64(len(s.series)+1), minChunk), largestChunk))
}

// add appends a sample to the tap's series and creates the series at its first value. If the sample
// is not newer than the last and rows overlap with another ring, the series already has it.
// Otherwise the clock was set back, and add drops the newer samples.
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

// addBlock appends samples from a driver's buffer (see collector.Buffer): pairs of a value and its duration in ms, oldest
// first. They continue after the previous row's samples, unless the accumulated time has drifted from the rows' time.
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

// maxBufferLag bounds how much older than its row a buffer's newest sample can be, ms.
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
		x.to, _ = x.open.Appender() // an empty chunk gives no error
	}
	x.to.Append(0, at, v)
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

// forget drops the oldest chunks that end before a time or exceed the memory limit.
func (s *store) forget(before int64) {
	for len(s.fifo) > 0 && (s.fifo[0].data == nil || s.fifo[0].until < before || s.bytes > s.limit) {
		if c := s.fifo[0]; c.data != nil {
			c.of.sealed = c.of.sealed[1:] // the next growing append releases the old array
			s.bytes -= int64(len(c.data)) + chunkBytes
			c.data = nil
		}
		s.fifo[0] = nil
		s.fifo = s.fifo[1:]
	}
}

// cut drops the samples of a series from the time from on.
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

// upTo re-encodes the samples before a time.
func upTo(data []byte, before int64) (out []byte, last int64) {
	kept := chunkenc.NewXORChunk()
	to, _ := kept.Appender() // an empty chunk gives no error
	for at, v := range decode(data) {
		if at >= before {
			break
		}
		to.Append(0, at, v)
		last = at
	}
	return append([]byte(nil), kept.Bytes()...), last // the first sample is earlier
}

// sweep seals chunks unchanged since idle, and removes series without a value since gone. Samples
// later than ahead are from before the clock was set back.
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
