// Package owner knows who uses which device: pods and their containers, resource
// claims, batch jobs. It joins the newest answers of the clients of package kube, of the
// job directory and of the processes on the devices with the devices on the board into an
// immutable table, from which exposition takes labels.
//
// A Keeper never waits for any of them: it reads their newest snapshots, which are
// in memory. Run rebuilds the table when one of them has changed; a View that has
// come meanwhile is joined by the first reader, so that no page shows devices
// without the owners that they had before. The version of the table grows only if an
// answer differs. If a client fails, its last snapshot stays, and so do labels. A pod that
// the API server has deleted keeps its uid and labels until the kubelet no longer lists it,
// so that all its labels leave together.
//
// # Whose is a shared device
//
// A device with one container has its labels. One that several containers of a
// pod share has those of the pod, without container. One that several pods share
// has none: it belongs to none of them. With Options.Virtual each of the device's
// series is instead copied for every container that shares it, with vgpu if the
// id numbers the shares; what the copies show is the whole device.
//
// A GPU that is divided has no labels of the pods on its instances, a GPU instance
// none of those on its compute instances. A compute instance and a link without
// owners have those of what they are part of. Instances have no labels of a pod that
// has the whole GPU.
//
// Labels that differ between several claims of a container to one device are left
// out. Jobs come on top: a copy of each series per job, named by the GPU's index, or
// by index and instance for an instance; neither is valid for the other. If a
// machine has GPUs of two vendors, each counts its GPUs from 0, and a file is valid for
// every GPU of its index.
//
// # Values of users
//
// With Options.Processes, what several users share in truth (with Virtual several
// containers, else several pods) shows two readings per user: DCGM_FI_DEV_GPU_UTIL
// and DCGM_FI_DEV_FB_USED, under every name that the list gives them, except as
// histograms. The device's own series stays as it is, without owners, and each
// user's series has pod_uid, so that the two are told apart and no sum counts
// twice. They come from the processes on the device whose pod the kubelet has given
// the device to. What processes of others use is in the device's series only.
//
// A pod whose UID is not known has no such series, and neither has a process whose
// pod is not known: what is absent is unknown. A pod without a process has 0 only if
// all processes on the device are known. Containers are told apart if the runtime
// names them; else a pod with several containers on the device has one series,
// without container. If some value of a user's processes is not known, the sum is
// not either. What a library reports for processes in place of time (AMD: the share of
// compute units that they occupy) stands for their utilisation.
package owner

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/view"
)

// Options of New. The zero value knows no users.
type Options struct {
	// The clients' newest answers: method values, as in client.Snapshot. They must not
	// block. nil: there is no such client.
	Allocations func() *kube.Allocations
	Metadata    func() *kube.Metadata
	Containers  func() *kube.Containers
	Jobs        func() *Jobs
	Processes   func() *Usage // with it, users of a shared device have their own values

	Virtual      bool              // series of a shared device are copied for each container, with vgpu
	Claims       bool              // devices of dynamic resource allocation count; needs Metadata's ResourceSlices
	PodUID       bool              // label pod_uid; values of processes have it anyway
	PodLabels    bool              // labels of pods, those that Metadata has
	JobLabels    []string          // user, partition: labels job_user, job_partition
	AMDPodLabels []field.NameValue // labels of pods that only names of AMD's exporter show, with the pod's name for each
	OldNamespace bool              // labels are called pod_name, pod_namespace, container_name
	Hostname     string            // name of the label that names the host, which no pod's label may have; "" means "hostname"

	// Ignore says which pods use no device although they have one: exporters, this one
	// first of all, that claim every device to read it. nil: none.
	Ignore func(namespace, pod string) bool

	StaleAfter time.Duration         // values of processes that are older are left out; 0 means 30 s
	Registerer prometheus.Registerer // of metrics about owners; nil for none
	Log        *zap.Logger           // nil logs nothing
}

const (
	defaultStaleAfter = 30 * time.Second
	defaultHostname   = "hostname"
	// checkPeriod is how often Run checks for what no client reports: another View, and
	// values that have become too old.
	checkPeriod = time.Second
	// rest is kept between two rebuilds: clients that start report each pod.
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

	// mu guards what follows and the publishing of table and shares. It is held for
	// computing only.
	mu        sync.Mutex
	instances map[string]string // MIG UUID → id of the device that it last meant
	runtime   runtimeNames
	unmatched unmatchedLog
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
		reserved:  reservedLabels(o.OldNamespace, o.Hostname),
		wake:      make(chan struct{}, 1),
		instances: map[string]string{},
	}
	k.metrics = newMetrics(k, o.Registerer)
	k.table.Store(k.build(board.Load(), k.read(), &table{}))
	return k
}

// Notify says that a client has published another snapshot. It never blocks;
// it is what their OnChange hooks call.
func (k *Keeper) Notify() {
	select {
	case k.wake <- struct{}{}:
	default: // Run has not yet seen the last one
	}
}

// Run keeps the table up to date until ctx ends, and returns nil. Call it once.
func (k *Keeper) Run(ctx context.Context) error {
	check := time.NewTicker(checkPeriod)
	defer check.Stop()
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
		case <-check.C:
		}
	}
}

// Refresh does at once what Run would do: it joins again if a snapshot or the View
// has changed, and brings the values of users up to date.
func (k *Keeper) Refresh(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rebuild(k.board.Load())
	k.share(now)
	k.unmatched.update(k.log, k.table.Load().unmatched, now)
}

// current returns the table of the View that is on the board. If the table is of another
// View, it is made here and now, from memory, so that no page shows devices without owners.
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
	t := k.build(v, in, last)
	k.table.Store(t)
	k.metrics.built(time.Since(start))
	if k.log.Core().Enabled(zapcore.DebugLevel) {
		k.logChanges(t, last)
	}
}

// logChanges logs, for people who look for a reason, each device whose users differ from
// those of the table before, and what the kubelet names and no device has.
func (k *Keeper) logChanges(t, last *table) {
	for _, d := range t.devices.all {
		if d.Level == field.Link {
			continue // which has those of its GPU
		}
		if users := t.describe(d); !slices.Equal(users, last.describe(d)) {
			k.log.Debug("a device has other users", zap.String("device", d.ID), zap.Strings("users", users))
		}
	}
	if !slices.Equal(t.unmatched, last.unmatched) {
		k.log.Debug("ids of the kubelet that name no device", zap.Int("ids", len(t.unmatched)), zap.String("device", examples(t.unmatched)))
	}
}

// Version grows whenever any answer of Owners or Split changes.
func (k *Keeper) Version() uint64 { return k.current().version }

// Owners returns the users of a device; see package exposition.
func (k *Keeper) Owners(d *collector.Device) []exposition.Owner {
	return k.current().answers[d.ID].owners
}

// Split reports whether a reading of a device is shown per user.
func (k *Keeper) Split(d *collector.Device, f field.ID) bool {
	return (f == gpuUtil || f == fbUsed) && k.current().answers[d.ID].split
}

// Shares returns the newest values per user; nil if users have none.
func (k *Keeper) Shares() *exposition.Shares { return k.shares.Load() }

// Describe says in words who uses a device: "pod ml/train-0, container main (share
// 3, nvidia.com/gpu.shared)", "job 4711". Empty if there is no user.
func (k *Keeper) Describe(d *collector.Device) []string { return k.current().describe(d) }

func (t *table) describe(d *collector.Device) (out []string) {
	for _, u := range t.usesOf(d) {
		out = append(out, u.String())
	}
	for _, job := range t.jobs[d.ID] {
		out = append(out, "job "+job)
	}
	return out
}

// Owner is a container that has a device, or a job that runs on it.
type Owner struct {
	Namespace, Pod, PodUID, Container string // PodUID is empty if it is not known
	Job                               string
}

// Users returns who uses a device, each once.
func (k *Keeper) Users(d *collector.Device) (out []Owner) {
	t := k.current()
	perContainer(t.usesOf(d), func(of []use) {
		u := &of[0]
		out = append(out, Owner{Namespace: u.pod.Namespace, Pod: u.pod.Name, PodUID: t.people.uids[u.pod], Container: u.container})
	})
	for _, job := range t.jobs[d.ID] {
		out = append(out, Owner{Job: job})
	}
	return out
}

// Container names the container of a process, "namespace/pod/container", or the pod if only
// that is known; empty if neither is.
func (k *Keeper) Container(podUID, id string) string {
	if podUID == "" && id == "" {
		return ""
	}
	t := k.current()
	k.mu.Lock()
	defer k.mu.Unlock()
	if c, known := k.runtime.container(id); known {
		return c.Pod.Namespace + "/" + c.Pod.Name + "/" + c.Name
	}
	if pod, known := k.runtime.pods[podUID]; known {
		return pod.Namespace + "/" + pod.Name
	}
	for pod, uid := range t.people.uids {
		if uid == podUID && uid != "" {
			return pod.Namespace + "/" + pod.Name
		}
	}
	return ""
}

// Unmatched returns the ids of the kubelet that name no device, sorted.
func (k *Keeper) Unmatched() []Unmatched { return slices.Clone(k.current().unmatched) }

// sureAfter is how long ids must have named no device until the log says so: at the
// start the kubelet answers before libraries have found their devices.
const sureAfter = 30 * time.Second

// unmatchedLog logs ids that name no device, once per change.
type unmatchedLog struct {
	seen   []Unmatched // in the last table
	since  time.Time
	logged []Unmatched
}

func (l *unmatchedLog) update(log *zap.Logger, unmatched []Unmatched, now time.Time) {
	if !slices.Equal(l.seen, unmatched) {
		l.seen, l.since = unmatched, now
	}
	if now.Sub(l.since) < sureAfter || slices.Equal(l.logged, l.seen) {
		return
	}
	l.logged = l.seen
	if len(l.logged) == 0 {
		log.Info("every device that the kubelet names is known")
		return
	}
	log.Warn("the kubelet names devices that are not known: their pods are on no series", zap.Int("ids", len(l.logged)), zap.String("device", examples(l.logged)))
}

// examples names a few of them.
func examples(list []Unmatched) string {
	const most = 3
	var out []string
	for _, u := range list[:min(len(list), most)] {
		out = append(out, u.Resource+" "+u.ID+" of pod "+u.Namespace+"/"+u.Pod+" ("+u.Reason+")")
	}
	return strings.Join(out, ", ")
}
