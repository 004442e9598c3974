// Package owner knows who uses which device: pods and their containers, resource claims, batch jobs. It joins the
// latest answers of package kube's clients, of the job directory and of the process collectors with the devices on the
// board into an immutable table, from which exposition reads labels.
//
// A Keeper never waits for any of them: it reads their latest snapshots from memory. Run rebuilds the table when one of
// them has changed. If a new View appears first, its first reader rebuilds the table, so that no page shows devices
// without their owners. If a client fails, its last snapshot stays, and so do labels. A pod that the API server has
// deleted keeps its UID and labels until the kubelet no longer lists it, so that all its labels leave together.
//
// # Owners of a shared device
//
// A device with one container has the container's labels. A device that several containers of a pod share has the pod's
// labels, without container. A device that several pods share has no labels. With Options.Virtual each of the device's
// series is instead copied for every container that shares it, with label vgpu if the ID numbers the shares.
//
// A divided GPU has no labels of the pods on its instances, and a GPU instance has none of the pods on its compute
// instances. A compute instance and a link without owners have their parent's labels. Instances have no labels of a pod
// that has the whole GPU. Labels that differ between several claims of a container to one device are omitted.
//
// Jobs are added: a copy of each series per job. A job file is named by the GPU's index, or by index and instance for
// an instance; neither applies to the other. If a machine has GPUs of two vendors, each vendor counts from 0, and a file
// applies to every GPU with its index.
//
// # Values of users
//
// With Options.Processes, a device that several users share (several containers with Virtual, else several pods) shows
// two readings per pod: DCGM_FI_DEV_GPU_UTIL and DCGM_FI_DEV_FB_USED. The device's own series stays, without owners,
// and each pod's series has pod_uid, so that no sum counts twice. The values come from the processes on the device
// whose pod has the device from the kubelet; other processes count only in the device's series.
//
// An absent series means unknown: the pod's UID, or the value of one of its processes. A pod without a process has 0 only if
// all processes on the device are known. A pod with several containers on the device has one series, without container.
package owner

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/view"
)

// Client has a latest answer. Snapshot returns it and must not block.
type Client[T any] interface{ Snapshot() *T }

// Options configure New. The zero value knows no users.
type Options struct {
	// The clients; nil: the client does not exist.
	Allocations Client[kube.Allocations]
	Metadata    Client[kube.Metadata]
	Jobs        Client[Jobs]
	Processes   Client[Usage] // gives users of a shared device their own values

	Virtual      bool              // copy the series of a shared device for each container, with vgpu
	Claims       bool              // count devices of dynamic resource allocation; requires Metadata's ResourceSlices
	PodUID       bool              // label pod_uid; values of processes have it anyway
	PodLabels    bool              // the labels of pods that Metadata holds
	JobLabels    []string          // user, partition: labels job_user, job_partition
	PodFacts     []field.NameValue // pod labels that only dialects show: the label's name there, and the pod label's name
	OldNamespace bool              // name the labels pod_name, pod_namespace, container_name
	Hostname     string            // the label for the host name, which pod labels must not use; "" means "hostname"

	// OwnPod is the exporter's pod, which uses no device although it may claim every device to read it. Without a
	// namespace the pod may have any; without a name no pod is ignored.
	OwnPod kube.PodName

	StaleAfter time.Duration         // older values of processes are dropped; 0 means 30 s
	Registerer prometheus.Registerer // for metrics about owners; may be nil
	Log        *zap.Logger           // may be nil
}

const (
	// checkPeriod is how often Run checks for changes that no client reports: another View, and values that have become
	// too old.
	checkPeriod = time.Second
	// rest is the minimum time between two rebuilds: clients that start report each pod.
	rest = 50 * time.Millisecond
)

// Keeper keeps the table of owners.
type Keeper struct {
	board    *view.Board
	o        Options
	log      *zap.Logger
	metrics  *metrics
	reserved map[string]bool
	wake     chan struct{} // capacity one

	table  atomic.Pointer[table]
	shares atomic.Pointer[view.Shares]

	// mu guards the fields below and the publishing of table and shares. It is held only for computing.
	mu        sync.Mutex
	instances map[string]string // MIG UUID → ID of the device that last had it
}

// New returns a Keeper of the owners of the devices on board. It panics if o.Registerer has another Keeper's metrics.
func New(board *view.Board, o Options) *Keeper {
	o.StaleAfter = cmp.Or(o.StaleAfter, 30*time.Second)
	o.Hostname = cmp.Or(o.Hostname, "hostname")
	o.Log = cmp.Or(o.Log, zap.NewNop())
	k := &Keeper{
		board:     board,
		o:         o,
		log:       o.Log.Named("owner"),
		reserved:  reservedLabels(o.OldNamespace, o.Hostname),
		wake:      make(chan struct{}, 1),
		instances: map[string]string{},
	}
	k.metrics = newMetrics(k, o.Registerer)
	k.table.Store(k.build(board.Load(), k.inputs(), &table{}))
	return k
}

// Notify reports that a client has published another snapshot. The clients' OnChange hooks call it. It never blocks.
func (k *Keeper) Notify() { view.Offer(k.wake, struct{}{}) }

// Run keeps the table up to date until ctx ends, and returns nil. It may be called once.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		start := time.Now()
		k.Refresh(start)
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
			time.Sleep(rest - time.Since(start))
		case <-view.Tick(checkPeriod):
		}
	}
}

// Refresh does Run's work at once: it rebuilds the table if a snapshot or the View has changed, and updates the values
// of users.
func (k *Keeper) Refresh(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rebuild(k.board.Load())
	k.share(now)
}

// current returns the table for the View on the board. It rebuilds a table for another View at once, from memory, so
// that no page shows devices without owners.
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

// rebuild joins the latest inputs, unless the table already matches them. It must be called with mu held.
func (k *Keeper) rebuild(v *view.View) {
	last, in := k.table.Load(), k.inputs()
	if last.from == in.source(v) {
		return
	}
	start := time.Now()
	k.table.Store(k.build(v, in, last))
	k.metrics.builds.Inc()
	k.metrics.duration.Observe(time.Since(start).Seconds())
}

// Version grows whenever any answer of Owners or Split changes.
func (k *Keeper) Version() uint64 { return k.current().version }

// Owners returns the users of a device; see package exposition.
func (k *Keeper) Owners(d *collector.Device) []view.Owner {
	return k.current().answers[d.ID].owners
}

// Split reports whether a reading of a device is shown per user.
func (k *Keeper) Split(d *collector.Device, f field.ID) bool {
	return (f == gpuUtil || f == fbUsed) && k.current().answers[d.ID].split
}

// Shares returns the newest values per user; nil if users have none.
func (k *Keeper) Shares() *view.Shares { return k.shares.Load() }

// Describe returns the uses of a device as text: "pod ml/train-0, container main (share 3, nvidia.com/gpu.shared)",
// "job 4711". It is empty without users.
func (k *Keeper) Describe(d *collector.Device) (out []string) {
	for _, u := range k.current().usesAndJobs(d) {
		out = append(out, u.String())
	}
	return out
}

// Owner is a container that has a device, or a job that runs on it.
type Owner struct {
	Namespace, Pod, PodUID, Container string // PodUID is empty if unknown
	Job                               string
}

// Users returns the users of a device, each once.
func (k *Keeper) Users(d *collector.Device) []Owner { return k.current().users(d) }

// Change identifies what Users were last found from: they are the same while it is. at is when that changed, as well as it is
// known; complete is false until all clients have answered.
func (k *Keeper) Change() (id uint64, at time.Time, complete bool) {
	t := k.current()
	return t.builds, t.at, k.answered()
}

// Pod returns the name of the pod with a UID, "namespace/pod"; "" if it is unknown.
func (k *Keeper) Pod(uid string) string {
	pod, known := k.findPod(k.current(), uid)
	if !known {
		return ""
	}
	return pod.Namespace + "/" + pod.Name
}

func (k *Keeper) findPod(t *table, uid string) (pod kube.PodName, known bool) {
	if uid == "" {
		return pod, false
	}
	if pod, known = newest(k.o.Metadata).ByUID[uid]; known {
		return pod, true
	}
	for pod, p := range t.podInfos { // the API server has deleted it, but the kubelet still lists it
		if p.uid == uid {
			return pod, true
		}
	}
	return pod, false
}

// Unmatched returns the kubelet's IDs without a device, sorted.
func (k *Keeper) Unmatched() []Unmatched { return slices.Clone(k.current().unmatched) }
