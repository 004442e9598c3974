package exposition

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// Self is the part of the page about this process. It is gathered in the background, so its methods never
// block. All bytes are immutable.
type Self interface {
	Version() uint64     // changes when the bytes have changed; each scrape calls it
	Text() []byte        // families in text 0.0.4
	OpenMetrics() []byte // families in OpenMetrics 1.0 without the final # EOF
	Protobuf() []byte    // length-delimited MetricFamily messages
}

// Owners returns the users of a device. The owner table (pods, jobs) implements it; its answers come from
// memory, so they never block.
type Owners interface {
	// Version changes whenever any answer of Owners or Split changes.
	Version() uint64
	// Owners returns the users of a device. Each user gets a copy of the device's series with these labels
	// added; without users there is one copy without them.
	Owners(d *collector.Device) []view.Owner
	// Split reports whether a reading of the device is split per user, by Shares:
	// then the device's own series stays single and without owners.
	Split(d *collector.Device, f field.ID) bool
	// Shares returns the newest values per user; nil if there are none.
	Shares() *view.Shares
}

// Options of New. The zero value is usable.
type Options struct {
	Hostname      string // value of the host label; "": no such label
	HostnameLabel string // its name; "" means "hostname"

	OldNamespace         bool          // the label UUID is called uuid
	ReplaceBlanksInModel bool          // blanks in model names become hyphens
	StaleAfter           time.Duration // leave out a device's series when its last sample is older; 0 means 30 s

	Store  *accumulate.Store // accumulated series; nil for none
	Owners Owners            // users of devices; nil for no owners
	Self   Self              // our own metrics; nil for none

	Registerer prometheus.Registerer // for metrics about rendering; nil for none
	Now        func() time.Time      // for a replay, the time to show; nil means time.Now
}

// minRenderInterval is how long a page is served when there are newer rows. With 200 sources that tick one after
// the other there is always a newer row; rendering everything for each would be most of the work.
const minRenderInterval = 100 * time.Millisecond

// store is the part of accumulate.Store that a Renderer uses. The lock is held while series are read.
type store interface {
	sync.Locker
	Sync(now time.Time) *view.View
	Rows() uint64
	Version() uint64
	Series() []accumulate.Series
}

// Renderer makes pages.
type Renderer struct {
	board   *view.Board
	o       Options
	metrics *metrics
	zips    sync.Pool // of *gzip.Writer

	pages        [formats]atomic.Pointer[page] // the newest page, by Format
	storeVersion atomic.Uint64                 // number of series after the last Sync
	generation   atomic.Uint64                 // version of the values: grows when rows are read
	scrapes      atomic.Uint64                 // calls of Negotiated

	// mu guards what follows. Its holder only computes.
	mu      sync.Mutex
	store   store  // nil if nothing is accumulated
	counted uint64 // rows that the store had counted for the last page
	snap    snapshot
	layout  *layout
	taken   taken
}

// taken identifies the state of the rows in snap. All formats show the same rows, so no value goes back for a
// client that changes its format.
type taken struct {
	of   origin
	rows uint64    // sum of the heads of all rings; each only grows
	at   time.Time // zero: never
}

// page is a rendered page. It is immutable, except that the first request for its compressed form makes that.
type page struct {
	data       []byte
	taken      taken
	generation uint64
	expires    int64 // Unix ns: when the first device on it becomes stale

	once   sync.Once
	zipped []byte
}

// origin identifies all inputs of a page, except the rows.
type origin struct {
	view   *view.View
	store  uint64
	owners uint64
	shares *view.Shares
	self   uint64
}

// New returns a Renderer of the board's Views. It panics if o.Registerer already has metrics of another Renderer.
func New(board *view.Board, o Options) *Renderer {
	o.HostnameLabel = cmp.Or(o.HostnameLabel, "hostname")
	o.StaleAfter = cmp.Or(o.StaleAfter, 30*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Renderer{board: board, o: o, metrics: newMetrics(o.Registerer)}
	r.zips.New = func() any {
		w, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
		if err != nil {
			panic(fmt.Sprintf("exposition: make compressor: %v", err)) // only for an illegal level
		}
		return w
	}
	if o.Store != nil {
		r.store = o.Store
	}
	return r
}

// Page returns the newest page, compressed with gzip if zipped. It must not be changed. If the last page is
// up to date, Page takes no lock; else one caller renders and the other callers wait for it.
func (r *Renderer) Page(f Format, zipped bool) []byte {
	p := r.newest(f, r.o.Now())
	if !zipped {
		return p.data
	}
	p.once.Do(func() {
		start := time.Now()
		p.zipped = r.compress(p.data)
		r.metrics.rendered(f, "gzip", len(p.zipped), time.Since(start))
	})
	return p.zipped
}

// newest returns the page to serve at now.
func (r *Renderer) newest(f Format, now time.Time) *page {
	of, rows := r.origin()
	if p := r.pages[f].Load(); r.serves(p, of, rows, now) {
		return p
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// Read this first: changes during the rendering may be on the page but are not in its origin, so the next
	// scrape renders again.
	of, rows = r.origin()
	last := r.pages[f].Load()
	if r.serves(last, of, rows, now) {
		return last // another caller has rendered it meanwhile
	}
	p := r.render(f, of, rows, now, last)
	r.pages[f].Store(p)
	return p
}

// serves reports whether p, which may be nil, is still valid for an origin.
func (r *Renderer) serves(p *page, of origin, rows uint64, now time.Time) bool {
	return p != nil && p.generation == r.generation.Load() && now.UnixNano() < p.expires && p.taken.serve(of, rows, now)
}

// serve reports whether the last rows are new enough for a page of an origin.
func (t *taken) serve(of origin, rows uint64, now time.Time) bool {
	return !t.at.IsZero() && t.of == of && (t.rows == rows || now.Sub(t.at) < minRenderInterval)
}

// origin returns the inputs of a page made now, and the sum of all heads.
func (r *Renderer) origin() (of origin, rows uint64) {
	of = origin{view: r.board.Load(), store: r.storeVersion.Load()}
	of.owners, of.shares = r.users()
	if r.o.Self != nil {
		of.self = r.o.Self.Version()
	}
	return of, headsOf(of.view)
}

// noShares stands for nil: there are no values per user.
var noShares = &view.Shares{}

// users returns the version of the owners and the newest values per user.
func (r *Renderer) users() (version uint64, shares *view.Shares) {
	if r.o.Owners == nil {
		return 0, noShares
	}
	return r.o.Owners.Version(), cmp.Or(r.o.Owners.Shares(), noShares)
}

// headsOf returns the number of rows that the sources of v have had.
func headsOf(v *view.View) (rows uint64) {
	for _, s := range v.Sources {
		rows += s.Ring.Head()
	}
	return rows
}

// render makes a page. It uses the last rows if they are new enough. The caller holds mu.
func (r *Renderer) render(f Format, of origin, rows uint64, now time.Time, last *page) *page {
	start := time.Now()
	fresh := now.UnixNano() >= r.snap.expires || !r.taken.serve(of, rows, now)
	if fresh {
		of.view = r.capture(of.view, now)
	}
	if r.store != nil {
		r.store.Lock()
		defer r.store.Unlock()
	}
	if fresh {
		r.refresh(of.view, of.owners, of.shares, now)
		copy(r.snap.shares, of.shares.Values)
		for _, c := range r.layout.computed {
			c.value = c.of()
		}
		of.store = r.storeVersion.Load()
		r.taken = taken{of, rows, now}
		r.generation.Add(1)
	} else if r.store != nil && r.store.Rows() != r.counted {
		r.generation.Add(1) // this page has counted more rows than the existing pages
	}
	if r.store != nil {
		r.counted = r.store.Rows()
	}
	p := &page{taken: r.taken, generation: r.generation.Load(), expires: r.snap.expires}
	if last != nil {
		p.data = make([]byte, 0, len(last.data)+len(last.data)/16) // values differ in length
	}
	p.data = r.assemble(p.data, f)
	r.metrics.rendered(f, "identity", len(p.data), time.Since(start))
	return p
}

// capture reads the newest rows of v, and then counts all rows. It returns the View of both, which is newer
// than v if the Views have changed meanwhile.
func (r *Renderer) capture(v *view.View, now time.Time) *view.View {
	for {
		r.snap.capture(v, r.o.StaleAfter, now)
		if r.store == nil {
			return v
		}
		counted := r.store.Sync(now)
		if counted == v {
			return v
		}
		v = counted
	}
}

// refresh builds a layout if sources, series or owners differ from the last layout's. The caller holds mu and
// the store's lock.
func (r *Renderer) refresh(v *view.View, owners uint64, shares *view.Shares, now time.Time) {
	var series []accumulate.Series
	if r.store != nil {
		r.storeVersion.Store(r.store.Version())
		series = r.store.Series()
	}
	version := r.storeVersion.Load()
	if l := r.layout; l != nil && l.view == v && l.store == version && l.owners == owners && l.shares == shares.Set {
		return
	}
	if r.snap.view != v {
		r.snap.reset(v, r.o.StaleAfter, now)
	}
	r.snap.shares = make([]float64, len(shares.Values))
	l := build(&r.o, v, &r.snap, series, shares)
	l.store, l.owners, l.shares = version, owners, shares.Set
	r.layout = l
	r.metrics.builds.Inc()
	r.metrics.series.Set(float64(l.stats.series))
	r.metrics.leftOut(l.stats)
}

// assemble appends the page of the current layout and snapshot.
func (r *Renderer) assemble(b []byte, f Format) []byte {
	self := r.o.Self
	switch f {
	case OpenMetrics:
		b = r.layout.appendText(b, open, &r.snap)
		if self != nil {
			b = append(b, self.OpenMetrics()...)
		}
		return append(b, "# EOF\n"...)
	case Protobuf:
		b = r.layout.appendProtobuf(b, &r.snap)
		if self != nil {
			b = append(b, self.Protobuf()...)
		}
		return b
	}
	b = r.layout.appendText(b, classic, &r.snap)
	if self != nil {
		b = append(b, self.Text()...)
	}
	return b
}

func (r *Renderer) compress(plain []byte) []byte {
	var out bytes.Buffer
	w, _ := r.zips.Get().(*gzip.Writer)
	defer r.zips.Put(w)
	w.Reset(&out)
	_, err := w.Write(plain)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic(fmt.Sprintf("exposition: compress into memory: %v", err)) // a Buffer never fails
	}
	return bytes.Clone(out.Bytes()) // a slow reader keeps no spare room
}

// syncEvery is how often Run reads the rings. A ring holds the rows of a minute, at least 16 and at most
// 1,024: ten seconds at the fastest tick.
const syncEvery = time.Second

// Run reads rows between scrapes, so that the accumulated series miss none. It also builds new layouts, so
// that the next scrape need not. It returns nil when ctx is done. Without Run, rows are lost if scrapes are further apart
// than the rings are long.
func (r *Renderer) Run(ctx context.Context) error {
	return view.Every(ctx, syncEvery, func(time.Time) { r.Sync(r.o.Now()) })
}

// Count is a series that counts events: XIDs, clock events.
type Count struct {
	Device string // collector.Device.ID
	Field  string // its name in the list
	Labels []collector.Label
	Value  float64
}

// Counts returns the counts as of the last Sync or page.
func (r *Renderer) Counts() (out []Count) {
	if r.store == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store.Lock()
	defer r.store.Unlock()
	all := r.store.Series()
	for i := range all {
		if s := &all[i]; s.Value != nil && !math.IsNaN(*s.Value) {
			out = append(out, Count{s.Source.Devices[s.Device].ID, s.Field.Name, s.Labels, *s.Value})
		}
	}
	return out
}

// Scrapes returns how many pages scrapers have been given.
func (r *Renderer) Scrapes() uint64 { return r.scrapes.Load() }

// Series returns how many series the page has room for, as of the last Sync or page; a histogram counts once.
func (r *Renderer) Series() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.layout == nil {
		return 0
	}
	return r.layout.stats.series
}

// Sync reads all rows that are in the rings now, and builds a new layout if needed.
func (r *Renderer) Sync(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	owners, shares := r.users()
	v := r.board.Load()
	if r.store != nil {
		v = r.store.Sync(now)
		r.store.Lock()
		defer r.store.Unlock()
	}
	r.refresh(v, owners, shares, now)
	if headsOf(r.board.Load()) != r.taken.rows {
		r.generation.Add(1) // the accumulated values are newer than on any page
	}
}
