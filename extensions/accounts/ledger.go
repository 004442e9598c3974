package accounts

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/extensions/accounts/report"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
)

// Owners knows who uses which device; owner.Keeper does.
type Owners interface {
	Change() (id uint64, at time.Time, complete bool)
	Users(d *collector.Device) []owner.Owner
	Pod(uid string) string
}

// Processes knows the processes on devices; owner.Processes does.
type Processes interface{ Snapshot() *owner.Usage }

// Options configure New.
type Options struct {
	Owners    Owners
	Processes Processes // nil: unknown
	IdleAfter time.Duration
	Node      string        // in reports
	Scrapes   func() uint64 // of the page so far
	Store     *Store        // nil: accounts end with the process
	Events    *events.Bus
	PodEvents *PodEvents // nil: pods get none
	Log       *zap.Logger
}

// Limits of the accounts.
const (
	maxEnded    = 1024             // accounts of owners that have left; the oldest go first
	maxAccounts = 1 << 16          // in the file
	keepEnded   = 10 * time.Minute // on the page, and until they were scraped twice
	keepReport  = 24 * time.Hour

	// A row is counted when it is so old that a change of owners at its time has been noticed: the job directory is read once a second.
	lag          = 1500 * time.Millisecond
	refreshEvery = 50 * time.Millisecond
	silentAfter  = 10 * time.Second // or three intervals, without a row, time passes and its activity is unknown
)

// throttling are the clock event reasons that are counted: power_cap, hw_slowdown, sync_boost, sw_thermal, hw_thermal, hw_power_brake.
const throttling = 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7

// Ledger keeps the accounts of all boards. It is a rows.Follower. Any goroutine may call its methods.
type Ledger struct {
	o       Options
	page    atomic.Pointer[[]prometheus.Metric]
	gathers atomic.Uint64 // of the page
	failed  bool          // the file could not be written; Run's

	mu       sync.Mutex // its holder only computes
	view     *view.View
	change   uint64
	complete bool      // owners are known
	changed  time.Time // when they were last given
	checked  time.Time
	began    time.Time // when the process restored accounts
	restored time.Time // when accounts were restored; zero: not, or all boards have their owners
	boards   map[string]*board
	accounts map[key]*account
	taps     [][]tap // by source of the View
	dropped  uint64  // accounts
}

// key names an account.
type key struct {
	report.Owner
	board string
}

// New returns a Ledger without accounts.
func New(o Options) *Ledger {
	o.Log = cmp.Or(o.Log, zap.NewNop())
	return &Ledger{o: o, boards: map[string]*board{}, accounts: map[key]*account{}}
}

// tap holds the cells of a source about a board; -1: there is none.
type tap struct {
	*board
	device                      int // index in the source
	energy, power, clock, masks int
	whole                       cells
	parts                       []cells
	instances                   []string // their IDs
	partAt                      []int    // and their indexes in the source
	peak                        float64  // MHz
}

// cells are the readings of a board or of an instance.
type cells struct {
	instance                                                      string
	util, engine, tensor, fp64, fp32, fp16, traffic, memory, size int
}

func newCells(instance string) cells { return cells{instance, -1, -1, -1, -1, -1, -1, -1, -1, -1} }

// board returns a board, and makes it if there is none.
func (l *Ledger) board(id string, since int64) *board {
	b := l.boards[id]
	if b == nil {
		b = &board{until: since, there: time.Unix(0, since), lost: l.account(unattributed, id)}
		b.spans = []span{{from: since, holders: []holder{{account: b.lost, size: 1, among: 1}}}}
		b.shares, b.parts = make([]float64, 1), make([]part, 1)
		b.lost.board, b.lost.came = b, since
		l.boards[id] = b
	}
	return b
}

// Bind implements rows.Follower.
func (l *Ledger) Bind(v *view.View, from []rows.Source, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.view, l.taps = v, make([][]tap, len(from))
	for i := range from {
		l.taps[i] = l.tap(&from[i], now)
	}
	l.refresh(now, true)
}

// tap returns the taps of a source.
func (l *Ledger) tap(s *rows.Source, now time.Time) (out []tap) {
	at := make([]*cells, len(s.Devices)) // by device
	of := make([]int, len(s.Devices))    // the board's tap
	for i := range s.Devices {
		if d := &s.Devices[i]; s.Supplies[i] && d.Level == field.GPU && !d.Unshown {
			b := l.board(d.ID, now.UnixNano())
			b.device = *d
			of[i] = len(out)
			out = append(out, tap{board: b, device: i, energy: -1, power: -1, clock: -1, masks: -1, whole: newCells(""), peak: peakClock(d.Model)})
		}
	}
	for n := range out {
		at[out[n].device] = &out[n].whole
		for i := range s.Devices {
			if d := &s.Devices[i]; d.Level == field.Instance && d.Parent == out[n].board.device.ID {
				out[n].parts, out[n].instances = append(out[n].parts, newCells(d.Instance.ID)), append(out[n].instances, d.Instance.ID)
				out[n].partAt = append(out[n].partAt, i)
			}
		}
		for i, next := 0, 0; i < len(s.Devices); i++ {
			if d := &s.Devices[i]; d.Level == field.Instance && d.Parent == out[n].board.device.ID {
				at[i] = &out[n].parts[next]
				next++
			}
		}
	}
	for i := range s.Columns {
		c := &s.Columns[i]
		to := at[c.Device]
		if to == nil || c.Buffer > 0 || len(c.Labels) > 0 {
			continue
		}
		cell := map[field.ID]*int{
			field.GPUUtilization: &to.util, field.EngineActive: &to.engine, field.TensorActive: &to.tensor, memoryActive: &to.traffic,
			fp64Active: &to.fp64, fp32Active: &to.fp32, fp16Active: &to.fp16, memoryUsed: &to.memory, memoryTotal: &to.size,
		}
		if to.instance == "" {
			t := &out[of[c.Device]]
			cell[field.TotalEnergy], cell[field.PowerUsage], cell[field.SMClock], cell[field.ClockEventReasons] = &t.energy, &t.power, &t.clock, &t.masks
		}
		if p := cell[c.Field]; p != nil && *p < 0 {
			*p = i
		}
	}
	return out
}

// Readings that only accounts need.
const (
	memoryTotal  field.ID = 250 // MiB
	memoryUsed   field.ID = 252 // MiB
	memoryActive field.ID = 1005
	fp64Active   field.ID = 1006
	fp32Active   field.ID = 1007
	fp16Active   field.ID = 1008
)

// account returns an account, and makes it if there is none.
func (l *Ledger) account(o report.Owner, board string) *account {
	k := key{o, board}
	a := l.accounts[k]
	if a == nil {
		a = &account{owner: o, use: noUsage}
		l.accounts[k] = a
	}
	return a
}

// accountOf returns the account of an owner that has a board now. The uid of a pod may come later than the pod, or be unknown after a
// restart; it is the same pod.
func (l *Ledger) accountOf(o report.Owner, board string) *account {
	if o.Kind != report.KindPod || l.accounts[key{o, board}] != nil {
		return l.account(o, board)
	}
	for k, a := range l.accounts {
		if other := k.Owner; k.board == board && a.left == 0 && (other.UID == "" || o.UID == "") {
			if other.UID = o.UID; other != o {
				continue
			}
			if o.UID != "" { // now it is known
				delete(l.accounts, k)
				a.owner, l.accounts[key{o, board}] = o, a
			}
			return a
		}
	}
	return l.account(o, board)
}

// refresh gives the boards to their owners if these have changed.
func (l *Ledger) refresh(now time.Time, bound bool) {
	l.checked = now
	change, at, complete := l.o.Owners.Change()
	late := !l.restored.IsZero() && now.Sub(l.restored) > restoreWithin
	if change == l.change && complete == l.complete && !bound && !late {
		return
	}
	if at.After(now) {
		at = now
	}
	known := at // since when these are the owners, at least
	if bound || complete != l.complete {
		at = now
	}
	l.change, l.complete, l.changed = change, complete, now
	present := map[string][]*collector.Device{} // instances by board
	for _, s := range l.view.Sources {
		for i := range s.Devices {
			switch d := &s.Devices[i]; d.Level {
			case field.GPU:
				present[d.ID] = append([]*collector.Device{}, present[d.ID]...)
			case field.Instance:
				if !slices.ContainsFunc(present[d.Parent], func(o *collector.Device) bool { return o.ID == d.ID }) {
					present[d.Parent] = append(present[d.Parent], d)
				}
			}
		}
	}
	waits := false
	for id, b := range l.boards {
		parts, there := present[id]
		if there || !b.absent {
			b.there = now
		}
		b.absent = !there
		if b.resume != nil {
			if !(complete && there) && !late {
				waits = true
				continue
			}
			l.takeUp(b, l.holders(b, id, parts, there), known.UnixNano())
			continue
		}
		give(b, l.holders(b, id, parts, there), max(at.UnixNano(), b.until))
	}
	if !waits {
		l.restored = time.Time{}
	}
}

// holders returns who has a board.
func (l *Ledger) holders(b *board, id string, parts []*collector.Device, there bool) (out []holder) {
	if !l.complete || !there {
		return []holder{{account: b.lost, size: 1, among: 1}}
	}
	add := func(device, instance string, size float64, users []report.Owner) {
		if len(users) == 0 {
			users = []report.Owner{vacant}
		}
		for _, u := range users {
			a := l.accountOf(u, id)
			a.board = b
			out = append(out, holder{a, device, instance, size / float64(len(users)), len(users)})
		}
	}
	if len(parts) == 0 {
		add(id, "", 1, l.users(&b.device))
		return out
	}
	rest, whole := 1.0, l.users(&b.device) // the owner of the board also has its instances without an owner
	for _, d := range parts {
		size := cmp.Or(d.Share(len(parts)), 1/float64(len(parts)))
		rest -= size
		users := l.users(d)
		if len(users) == 0 {
			users = whole
		}
		add(d.ID, d.Instance.ID, size, users)
	}
	if rest > 1e-9 {
		add(id, "", rest, whole)
	}
	return out
}

func (l *Ledger) users(d *collector.Device) (out []report.Owner) {
	for _, u := range l.o.Owners.Users(d) {
		o := report.Owner{Kind: report.KindPod, Namespace: u.Namespace, Pod: u.Pod, UID: u.PodUID, Container: u.Container}
		if u.Job != "" {
			o = report.Owner{Kind: report.KindJob, Job: u.Job}
		}
		out = append(out, o)
	}
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// give lets the holders have a board from a time on.
func give(b *board, next []holder, at int64) {
	last := b.now().holders
	if slices.Equal(last, next) {
		return
	}
	at = max(at, b.now().from)
	for _, h := range last {
		h.left, h.scrapes = at, 0
	}
	b.take(next, at)
	b.spans = append(b.spans, span{at, next})
}

// take marks the holders as present.
func (b *board) take(next []holder, at int64) {
	for _, h := range next {
		if h.left > 0 || h.came == 0 {
			h.came, h.since, h.idle = cmp.Or(h.came, at), at, false
		}
		h.left, h.hidden, h.told = 0, false, false
	}
	b.shares, b.parts = make([]float64, max(len(b.shares), len(next))), make([]part, max(len(b.parts), len(next)))
}

// retire takes owners off the page that left long ago, and forgets the oldest, and boards that are not there.
func (l *Ledger) retire(now time.Time) {
	for id, b := range l.boards {
		if b.absent && now.Sub(b.there) > keepReport {
			delete(l.boards, id)
			maps.DeleteFunc(l.accounts, func(k key, _ *account) bool { return k.board == id })
		}
	}
	var ended []key
	for k, a := range l.accounts {
		if a.left > 0 && (k.Kind == report.KindPod || k.Kind == report.KindJob) {
			ended = append(ended, k)
		}
	}
	slices.SortFunc(ended, func(a, b key) int { return cmp.Compare(l.accounts[a].left, l.accounts[b].left) })
	for i, k := range ended {
		a := l.accounts[k]
		gone := now.Sub(time.Unix(0, a.left))
		a.hidden = a.hidden || a.scrapes >= 2 && gone > keepEnded
		if over := len(ended)-i > maxEnded; over || a.hidden && gone > keepReport {
			delete(l.accounts, k)
			if over && !a.hidden {
				l.dropped++
			}
		}
	}
}

// Row implements rows.Follower.
func (l *Ledger) Row(row *rows.Row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if row.Read.Sub(l.checked).Abs() >= refreshEvery {
		l.refresh(row.Read, false)
	}
	until := row.Read.Add(-lag).UnixNano()
	for i := range l.taps[row.Source] {
		t := &l.taps[row.Source][i]
		t.push(row)
		t.commit(until)
	}
	for _, x := range row.XIDs {
		for i := range l.taps[row.Source] {
			t := &l.taps[row.Source][i]
			part := slices.Index(t.partAt, x.Device)
			if t.device != x.Device && part < 0 {
				continue
			}
			for h := range t.present() {
				if part < 0 || h.instance == t.instances[part] {
					h.xids++
				}
			}
		}
	}
}

// at returns a cell between 0 and a limit, else NaN: another process can write to the rings.
func at(row *rows.Row, cell int, limit float64) float64 {
	if cell < 0 || !(row.Cells[cell] >= 0 && row.Cells[cell] <= limit) {
		return unknown
	}
	return row.Cells[cell]
}

// Limits of values that are counted.
const (
	maxEnergy = 1e15 // mJ
	maxPower  = 1e5  // W
	maxMemory = 1e9  // MiB
	maxRow    = time.Hour
)

// push queues what a row says of the board.
func (t *tap) push(row *rows.Row) {
	d := &row.Devices[t.device]
	if !d.Sampled || d.Millis > float64(maxRow.Milliseconds()) {
		return
	}
	t.board.every = time.Duration(d.Millis * float64(time.Millisecond))
	s := t.board.push(row.Stamps[t.device])
	s.until = row.Stamps[t.device]
	s.from = s.until - int64(d.Millis*float64(time.Millisecond))
	s.energy, s.power, s.clock = at(row, t.energy, maxEnergy), at(row, t.power, maxPower), at(row, t.clock, 1e4)/t.peak
	if c := &t.board.counts; !c.started && s.energy >= 0 {
		*c = meter{started: true, last: s.energy, at: s.until}
	}
	s.reasons = 0
	if m := at(row, t.masks, 1<<32); m >= 0 {
		s.reasons = uint64(m) & throttling
	}
	s.whole, s.instances, s.parts = t.whole.read(row), t.instances, s.parts[:0]
	for i := range t.parts {
		s.parts = append(s.parts, t.parts[i].read(row))
	}
}

func (c *cells) read(row *rows.Row) reading {
	busy := at(row, c.util, 100) / 100
	if math.IsNaN(busy) {
		busy = share(row, c.engine)
	}
	r := reading{busy, share(row, c.tensor), unknown, share(row, c.traffic), at(row, c.memory, maxMemory) * (1 << 20), at(row, c.size, maxMemory) * (1 << 20)}
	for _, v := range [...]float64{r.tensor, share(row, c.fp64), share(row, c.fp32), share(row, c.fp16)} {
		if v >= 0 && !(r.pipes >= v) {
			r.pipes = v
		}
	}
	return r
}

// share returns a cell that is a share of time. Libraries exceed 1 by their rounding.
func share(row *rows.Row, cell int) float64 { return min(at(row, cell, 1.1), 1) }
