package kube

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Allocations is the kubelet's latest answer. It is immutable.
type Allocations struct {
	// Version grows with each change of content. The first answer is a change; 0 means no answer yet.
	Version uint64
	// Time is when the content was last confirmed; zero before the first answer.
	Time time.Time
	Pods []Pod // pods with relevant devices or claims, by namespace and name
}

// Pod is a pod with devices. The kubelet does not report its UID.
type Pod struct {
	PodName
	Containers []Container // containers with relevant devices or claims, by name
}

// Container is a container with devices.
type Container struct {
	Name    string
	Devices []Devices // one entry per resource, sorted
	Claims  []Claim   // sorted
}

// Devices are devices of one resource.
type Devices struct {
	Resource string   // for example nvidia.com/gpu
	IDs      []string // the device plugin's IDs; sorted, unique
}

// Claim is one device of a resource claim (dynamic resource allocation).
type Claim struct {
	Namespace, Name string     // of the claim
	Device          DeviceName // as in a ResourceSlice
}

func (c Claim) compare(d Claim) int {
	return cmp.Or(cmp.Compare(c.Namespace, d.Namespace), cmp.Compare(c.Name, d.Name), c.Device.compare(d.Device))
}

// KubeletOptions configure NewKubelet.
type KubeletOptions struct {
	// Socket is the path of the kubelet's socket, with or without unix://. In a container mount the socket's directory:
	// a mounted socket keeps belonging to the old kubelet after a restart.
	Socket string
	// Period is the time between two lists; 0 means 5 s. The kubelet allows all its clients together a hundred calls
	// per second.
	Period    time.Duration
	Resources []string    // kept in addition to the vendors' names (field.OffersGPU) and to claims
	OnChange  func()      // called after new content was published; must not block; may be nil
	Log       *zap.Logger // may be nil
}

// kubeletLimits are constants that only tests change.
type kubeletLimits struct {
	timeout time.Duration // of one call
	// A restarted kubelet serves before it has found its pods, and lists none, or only static ones, although all keep
	// running. A pod that it no longer lists keeps its devices until
	//  - the kubelet lists half of all pods that it listed before, and its list of pods has not changed for steady; or
	//  - distrust has passed; or
	//  - another pod has got its devices.
	steady, distrust time.Duration
	maxBytes         int // bytes of an answer; gRPC's default is 4 MiB, and the kubelet's other clients accept 16
}

// silentCalls is how many consecutive calls may time out before another connection is tried. gRPC pings would be
// quicker, but a server treats more than one in five minutes as an attack.
const silentCalls = 3

// Kubelet reads from the kubelet of this node which pod has which device, every Period.
type Kubelet struct {
	Health *Health

	o       KubeletOptions
	limits  kubeletLimits
	shown   atomic.Pointer[Allocations]
	connect func(context.Context) (lister, *failure)

	// Used by Run's goroutine only.
	lister  lister // nil: not connected
	fresh   bool   // the connection has not returned a list yet
	silent  int    // consecutive timed-out calls
	restart restart
	holders holders
}

// lister is one connection to a kubelet.
type lister interface {
	list(context.Context) (*v1.ListPodResourcesResponse, *failure)
	close()
}

// NewKubelet returns a Kubelet. Its snapshot is empty before Run.
func NewKubelet(o KubeletOptions) *Kubelet {
	o.Socket = strings.TrimPrefix(o.Socket, "unix://")
	o.Period = cmp.Or(o.Period, 5*time.Second)
	if o.OnChange == nil {
		o.OnChange = func() {}
	}
	k := &Kubelet{
		o:      o,
		Health: NewHealth(MappingPodResources, o.Log, socketReasons...),
		limits: kubeletLimits{timeout: 10 * time.Second, steady: 15 * time.Second, distrust: 5 * time.Minute, maxBytes: 16 << 20},
	}
	k.connect = func(ctx context.Context) (lister, *failure) { return dial(ctx, o.Socket, k.limits) }
	k.shown.Store(&Allocations{})
	return k
}

// Snapshot returns the last published Allocations, never nil. It does not wait.
func (k *Kubelet) Snapshot() *Allocations { return k.shown.Load() }

// Run polls until ctx ends, and returns nil. It may be called once.
func (k *Kubelet) Run(ctx context.Context) error {
	defer k.hangUp()
	for {
		k.poll(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(k.o.Period):
		}
	}
}

// poll lists once and publishes the answer.
func (k *Kubelet) poll(ctx context.Context) {
	list, f := k.list(ctx)
	switch {
	case ctx.Err() != nil:
		return // Run is ending, which is not a failure
	case f != nil:
		k.Health.Failed(f.reason, f.err)
		return
	}
	found, listed := readAnswer(list, k.o.Resources)
	now, last := time.Now(), k.Snapshot()
	if k.fresh {
		k.fresh = false
		k.restart.begin(now)
	}
	pods, holders := k.holders.assign(found)
	kept := k.restart.missing(last.Pods, pods, listed, now, k.limits)
	if len(kept) == 0 {
		k.holders = holders
		k.publish(pods, now)
		containers := 0
		for _, p := range pods {
			containers += len(p.Containers)
		}
		k.Health.Succeeded(containers)
		return
	}
	pods = slices.Concat(kept, pods)
	sortPods(pods)
	k.publish(pods, last.Time)
	f = fail(ReasonRecovering, "list pods at %q: the kubelet has restarted and lists %d pods, without %d that had devices and keep them for now (if this lasts: does the kubelet reach the API server?)", k.o.Socket, len(listed), len(kept))
	k.Health.Failed(f.reason, f.err)
}

// list lists the pods, over a new connection if there is none or it has ended.
func (k *Kubelet) list(ctx context.Context) (*v1.ListPodResourcesResponse, *failure) {
	for reused := k.lister != nil; ; reused = false {
		if k.lister == nil {
			l, f := k.connect(ctx)
			if f != nil {
				return nil, f
			}
			k.lister, k.fresh = l, true
		}
		limited, cancel := context.WithTimeout(ctx, k.limits.timeout)
		list, f := k.lister.list(limited)
		cancel()
		if f == nil || f.reason != ReasonTimeout {
			k.silent = 0
		}
		if f == nil {
			return list, nil
		}
		switch f.reason {
		case ReasonTimeout:
			if k.silent++; k.silent%silentCalls == 0 {
				k.hangUp()
			}
		case ReasonClosed, ReasonNotGRPC:
			k.hangUp()
			if reused && f.reason == ReasonClosed {
				continue // the kubelet may have restarted in the meantime
			}
		}
		return nil, f
	}
}

func (k *Kubelet) hangUp() {
	if k.lister != nil {
		k.lister.close()
		k.lister = nil
	}
}

// publish publishes a snapshot. If the content is unchanged, the Version stays.
func (k *Kubelet) publish(pods []Pod, confirmed time.Time) {
	last := k.Snapshot()
	if last.Version > 0 && reflect.DeepEqual(last.Pods, pods) {
		k.shown.Store(&Allocations{Version: last.Version, Time: confirmed, Pods: last.Pods})
		return
	}
	k.shown.Store(&Allocations{Version: last.Version + 1, Time: confirmed, Pods: pods})
	k.o.OnChange()
}
