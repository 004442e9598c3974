package exposition

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/view"
)

// Self is the part of the page that speaks of this process. It is gathered in
// the background, so asking for it never blocks. All bytes are immutable.
type Self interface {
	Version() uint64     // changes when the bytes have changed
	Text() []byte        // families in text 0.0.4
	OpenMetrics() []byte // families in OpenMetrics 1.0 without the final # EOF
	Protobuf() []byte    // length-delimited MetricFamily messages
}

// Options of New. The zero value is usable.
type Options struct {
	Hostname      string // value of the label that names the host; "" means no such label
	HostnameLabel string // its name; "" means "hostname"

	OldNamespace         bool          // the label UUID is called uuid
	ReplaceBlanksInModel bool          // blanks in model names become hyphens
	StaleAfter           time.Duration // series of a device that was sampled longer ago are left out; 0 means 30 s

	Store  *accumulate.Store // what is accumulated; nil for nothing
	Owners Owners            // who uses devices; nil for nobody
	Self   Self              // our own metrics; nil for none

	Registerer prometheus.Registerer // of metrics about rendering; nil for none
}

const (
	defaultHostnameLabel = "hostname"
	defaultStaleAfter    = 30 * time.Second
)

// store is what a Renderer asks of accumulate.Store, whose methods want one
// caller at a time.
type store interface {
	Sync(v *view.View, now time.Time)
	Version() uint64
	Series() []accumulate.Series
}

var _ store = (*accumulate.Store)(nil)

// Renderer makes pages.
type Renderer struct {
	board   *view.Board
	o       Options
	metrics *metrics
	accepts memo

	slots [formats][2]slot // by Format.bytes, and plain or gzip

	storeVersion atomic.Uint64 // of the series after the last Sync

	// mu guards what follows. Whoever holds it only computes. Lock order: zipMu, mu.
	mu     sync.Mutex
	store  store // nil if nothing is accumulated
	snap   snapshot
	layout *layout

	zipMu sync.Mutex // guards zip and out
	zip   *gzip.Writer
	out   appender
}

// New returns a Renderer of the Views that hang on board. It panics if
// o.Registerer has metrics of another Renderer already.
func New(board *view.Board, o Options) *Renderer {
	if o.HostnameLabel == "" {
		o.HostnameLabel = defaultHostnameLabel
	}
	if o.StaleAfter == 0 {
		o.StaleAfter = defaultStaleAfter
	}
	r := &Renderer{board: board, o: o, metrics: newMetrics(o.Registerer)}
	if o.Store != nil {
		r.store = o.Store
	}
	for f := range r.slots {
		for z := range r.slots[f] {
			s := &r.slots[f][z]
			s.spare = make([]*Page, 0, maxSpare)
		}
	}
	return r
}

// Page returns the newest page, compressed with gzip if zipped. Never nil; the
// caller must Release it. If nothing has changed since the last call, no lock
// is taken and nothing allocated; else one caller renders and the others of
// that moment wait for it.
func (r *Renderer) Page(f Format, zipped bool) *Page {
	f = f.bytes()
	compressed := 0
	if zipped {
		compressed = 1
	}
	s := &r.slots[f][compressed]
	if p := s.fresh(r.generation(r.board.Load()), time.Now().UnixNano()); p != nil {
		return p
	}
	if zipped {
		return r.compress(f, s)
	}
	return r.render(f, s)
}

// generation returns what a page of v would now be made from.
func (r *Renderer) generation(v *view.View) generation {
	g := generation{view: v, store: r.storeVersion.Load()}
	for _, s := range v.Sources {
		g.rows += s.Ring.Head()
	}
	if r.o.Owners != nil {
		g.owners = r.o.Owners.Version()
		g.shares = r.o.Owners.Shares()
	}
	if r.o.Self != nil {
		g.self = r.o.Self.Version()
	}
	return g
}

// render makes a page unless another goroutine has done so meanwhile. The
// generation is read before anything else is: what comes in while we render is
// on the page but not in its generation, so the next caller renders again.
func (r *Renderer) render(f Format, s *slot) *Page {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	g := r.generation(r.board.Load())
	if p := s.fresh(g, now.UnixNano()); p != nil {
		return p
	}
	r.snap.take(g.view, r.o.StaleAfter, now)
	r.refresh(g, now) // after the rows, so that it counts them all
	r.snap.shares = g.shares.values()
	g.store = r.storeVersion.Load()

	p := s.blank()
	p.data = r.assemble(p.data[:0], f)
	p.generation, p.expires = g, r.snap.expires
	s.publish(p)
	r.metrics.rendered(f, false, len(p.data), time.Since(now))
	return p
}

// refresh brings the accumulated series up to date, and the layout if sources,
// series or owners are not those that it was built for. The caller holds mu.
func (r *Renderer) refresh(g generation, now time.Time) {
	var series []accumulate.Series
	if r.store != nil {
		r.store.Sync(g.view, now)
		r.storeVersion.Store(r.store.Version())
		series = r.store.Series()
	}
	version := r.storeVersion.Load()
	if l := r.layout; l != nil && l.view == g.view && l.store == version && l.owners == g.owners && l.shares == g.shares.set() {
		return
	}
	if r.snap.view != g.view {
		r.snap.reset(g.view, now)
	}
	l := build(&r.o, g.view, r.snap.roster, series, g.shares)
	l.store, l.owners, l.shares = version, g.owners, g.shares.set()
	r.layout = l
	r.metrics.laidOut(l.stats)
}

// assemble appends the page of the current layout and snapshot.
func (r *Renderer) assemble(b []byte, f Format) []byte {
	switch f {
	case OpenMetrics:
		b = r.layout.appendText(b, open, &r.snap)
		if r.o.Self != nil {
			b = append(b, r.o.Self.OpenMetrics()...)
		}
		return append(b, "# EOF\n"...)
	case Protobuf:
		b = r.layout.appendProtobuf(b, &r.snap)
		if r.o.Self != nil {
			b = append(b, r.o.Self.Protobuf()...)
		}
		return b
	}
	b = r.layout.appendText(b, classic, &r.snap)
	if r.o.Self != nil {
		b = append(b, r.o.Self.Text()...)
	}
	return b
}
