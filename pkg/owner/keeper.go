package owner

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/cri"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/hpc"
	"warpgauge/pkg/podmeta"
	"warpgauge/pkg/podresources"
	"warpgauge/pkg/process"
	"warpgauge/pkg/view"
)

// Options of New. The zero value knows nobody.
type Options struct {
	// The clients' newest answers: method values, as in client.Snapshot. They must not
	// block. nil: that is not asked.
	PodResources func() *podresources.Snapshot
	PodMeta      func() *podmeta.Snapshot
	Containers   func() *cri.Snapshot
	Jobs         func() *hpc.Snapshot
	Processes    func() *process.Snapshot // with it, users of a shared device have values of their own

	Virtual      bool   // series of a shared device are copied for each container, with vgpu
	Claims       bool   // devices of dynamic resource allocation count; wants PodMeta's ResourceSlices
	PodUID       bool   // label pod_uid; values of processes have it anyway
	PodLabels    bool   // labels of pods, those that PodMeta lets through
	OldNamespace bool   // labels are called pod_name, pod_namespace, container_name
	Hostname     string // name of the label that tells the host, which no pod's label may have; "" means "hostname"

	// Ignore says which pods use no device though they have one: exporters, this one
	// first of all, that claim every device to look at it. nil: none.
	Ignore func(namespace, pod string) bool

	StaleAfter time.Duration         // values of processes that are older are left out; 0 means 30 s
	Registerer prometheus.Registerer // of metrics about owners; nil for none
	Log        *zap.Logger           // nil logs nothing
}

const (
	defaultStaleAfter = 30 * time.Second
	defaultHostname   = "hostname"
	// lookEvery is how often Run looks for what nobody tells: another View, and values
	// that have become too old.
	lookEvery = time.Second
	// rest is kept between two rebuilds: clients that start tell of each pod.
	rest = 50 * time.Millisecond
)

// Keeper keeps the table of owners.
type Keeper struct {
	board    *view.Board
	o        Options
	log      *zap.Logger
	metrics  *metrics
	reserved map[string]bool
	wake     chan struct{} // holds one

	table  atomic.Pointer[table]
	shares atomic.Pointer[exposition.Shares]

	// mu guards what follows and the publishing of table and shares. Whoever holds it
	// only computes.
	mu        sync.Mutex
	instances map[string]string // MIG UUID → id of the device that it last meant
	who       runtimeNames
	told      teller
}

var _ exposition.Owners = (*Keeper)(nil)

// New returns a Keeper of the owners of the devices on board. It panics if
// o.Registerer has the metrics of another one.
func New(board *view.Board, o Options) *Keeper {
	o.StaleAfter = cmp.Or(o.StaleAfter, defaultStaleAfter)
	o.Hostname = cmp.Or(o.Hostname, defaultHostname)
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	k := &Keeper{
		board:     board,
		o:         o,
		log:       o.Log.Named("owner"),
		reserved:  reserved(o.OldNamespace, o.Hostname),
		wake:      make(chan struct{}, 1),
		instances: map[string]string{},
	}
	k.metrics = newMetrics(k, o.Registerer)
	k.table.Store(k.build(board.Load(), k.read(), &table{}))
	return k
}

// Notify says that a client has published another Snapshot. It never blocks;
// it is what their OnChange hooks call.
func (k *Keeper) Notify() {
	select {
	case k.wake <- struct{}{}:
	default: // Run has not yet seen the last one
	}
}

// Run keeps the table up to date until ctx ends, and returns nil. Call it once.
func (k *Keeper) Run(ctx context.Context) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		k.Refresh(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-look.C:
		}
	}
}

// Refresh does at once what Run would do: it joins anew if a Snapshot or the View
// has changed, and brings the values of users up to date.
func (k *Keeper) Refresh(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rebuild(k.board.Load())
	k.share(now)
	k.told.tell(k.log, k.table.Load(), now)
}

// current returns the table of the View that is on the board. Where a View has come
// that the table does not know, the table is made here and now, from memory, lest a
// page show its devices without owners.
func (k *Keeper) current() *table {
	t, v := k.table.Load(), k.board.Load()
	if t.from.view == v {
		return t
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rebuild(v)
	return k.table.Load()
}

// rebuild joins what is newest, unless the table is of it already. Call it with mu
// held.
func (k *Keeper) rebuild(v *view.View) {
	last, in := k.table.Load(), k.read()
	from := in.source(v)
	if last.from == from {
		return
	}
	start := time.Now()
	k.table.Store(k.build(v, in, last))
	k.metrics.built(time.Since(start))
}

// Version grows whenever any answer of Owners or Split changes.
func (k *Keeper) Version() uint64 { return k.current().version }

// Owners returns the users of a device; see package exposition.
func (k *Keeper) Owners(d *collector.Device) []exposition.Owner {
	return k.current().answers[d.ID].owners
}

// Split reports whether a reading of a device is told per user.
func (k *Keeper) Split(d *collector.Device, f field.ID) bool {
	return (f == gpuUtil || f == fbUsed) && k.current().answers[d.ID].split
}

// Shares returns the newest values per user; nil if users have none.
func (k *Keeper) Shares() *exposition.Shares { return k.shares.Load() }
