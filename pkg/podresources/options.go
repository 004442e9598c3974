package podresources

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"warpgauge/pkg/mapping"
)

// DefaultSocket is where the kubelet listens unless it was told otherwise.
const DefaultSocket = "/var/lib/kubelet/pod-resources/kubelet.sock"

// Options of New. The zero value is usable.
type Options struct {
	// Socket is the path of the kubelet's socket, with or without unix:// before
	// it; empty means DefaultSocket. In a container mount its directory, not the
	// socket: a mounted socket stays that of a kubelet that is gone.
	Socket string
	// Keep says which resources count; it is called from Run's goroutine. Claims
	// always count. Nil means that all resources do.
	Keep func(resource string) bool

	// Period lies between two lists when nobody suspects anything; 0 means 5 s. A
	// pod's devices are then known before a scraper with the usual 15 s or 30 s
	// sees them twice, for a fifth of a call per second out of the hundred that the
	// kubelet grants all its clients together.
	Period time.Duration
	// AllocatablePeriod lies between two questions for what could be handed out,
	// which changes with the node and not with its pods; 0 means 1 min.
	AllocatablePeriod time.Duration
	// Timeout of each call; 0 means 10 s. Nobody waits for it but the next look.
	Timeout time.Duration

	// Settle and Distrust are for a kubelet that has restarted: it serves before it
	// has found its pods, and lists none, or only static ones, while all go on
	// running. A pod that it does not list any more then keeps its devices until
	//   - the kubelet lists half of all pods again that it listed before, with
	//     devices or without, and its list of pods has not changed for Settle;
	//     0 means 15 s; or
	//   - Distrust has passed, whatever is listed; 0 means 5 min. So long is an
	//     empty list not believed, nor one of static pods while the API server is
	//     down; or
	//   - another pod has got its devices.
	Settle, Distrust time.Duration

	// MaxMessage is the largest answer in bytes that is read; 0 means 64 MiB, which
	// is 64 KiB for each of 1,000 pods and 16 times grpc's own limit. Reading one
	// takes twice as much memory for a moment.
	MaxMessage int

	// OnChange is called, from Run's goroutine, after a Snapshot with other content
	// was published. It must not block. Nil means nobody.
	OnChange func()
	// Health is told of each look; nil means nobody. See Reasons.
	Health *mapping.Health
	Log    *zap.Logger // nil logs nothing

	// gap is the least time between two looks, so that nothing that happens, however
	// often, costs the kubelet more than two of its hundred calls per second; 0 means 1 s.
	gap  time.Duration
	dial func(context.Context) (kubelet, *failure) // nil means the socket
	open func() (*fsnotify.Watcher, error)         // nil means fsnotify.NewWatcher
}

func (o Options) withDefaults() Options {
	o.Socket = cmp.Or(strings.TrimPrefix(o.Socket, "unix://"), DefaultSocket)
	o.Period = cmp.Or(o.Period, 5*time.Second)
	o.AllocatablePeriod = cmp.Or(o.AllocatablePeriod, time.Minute)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.Settle = cmp.Or(o.Settle, 15*time.Second)
	o.Distrust = cmp.Or(o.Distrust, 5*time.Minute)
	o.MaxMessage = cmp.Or(o.MaxMessage, 64<<20)
	o.gap = cmp.Or(o.gap, time.Second)
	if o.Keep == nil {
		o.Keep = func(string) bool { return true }
	}
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	if o.Health == nil {
		o.Health = mapping.New(mapping.PodResources, nil, Reasons()...)
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.open == nil {
		o.open = fsnotify.NewWatcher
	}
	return o
}
