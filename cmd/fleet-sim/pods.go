package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/view"
)

// podOptions sets the pods that use the GPUs.
type podOptions struct {
	perDevice int
	lifetime  time.Duration // 0 means for ever
}

const (
	maxPods    = 64
	namespaces = 8 // of the whole fleet
)

// pods is a scripted kubelet: every device has pods, and another pod replaces each one at the end of its life. The
// pods end at different times.
type pods struct {
	o        podOptions
	host     string
	node     int
	board    *view.Board
	start    time.Time
	snapshot atomic.Pointer[kube.Allocations]
}

func newPods(o podOptions, host string, node int, board *view.Board) *pods {
	p := &pods{o: o, host: host, node: node, board: board, start: time.Now()}
	p.snapshot.Store(&kube.Allocations{})
	return p
}

// Snapshot implements owner.Client.
func (p *pods) Snapshot() *kube.Allocations { return p.snapshot.Load() }

// run publishes again whenever devices or pods have changed, and calls changed.
func (p *pods) run(ctx context.Context, changed func()) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if now := time.Now(); p.answer(now) {
			changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// answer publishes the pod of each device, unless nothing has changed.
func (p *pods) answer(now time.Time) (changed bool) {
	var all []kube.Pod
	for _, s := range p.board.Load().Sources {
		for i := range s.Devices {
			if usable(&s.Devices[i], s.Devices) {
				all = append(all, p.podsOf(&s.Devices[i], now.Sub(p.start))...)
			}
		}
	}
	slices.SortFunc(all, func(a, b kube.Pod) int { return a.PodName.Compare(b.PodName) })
	last := p.snapshot.Load()
	if len(all) == 0 || reflect.DeepEqual(all, last.Pods) {
		return false
	}
	p.snapshot.Store(&kube.Allocations{Version: last.Version + 1, Time: now, Pods: all})
	return true
}

// usable reports whether a pod can use the device: an instance, or a GPU without instances.
func usable(d *collector.Device, all []collector.Device) bool {
	switch d.Level {
	case field.Instance:
		return d.Instance.UUID != ""
	case field.GPU:
		return !slices.ContainsFunc(all, func(part collector.Device) bool {
			return part.Parent == d.ID && part.Level == field.Instance
		})
	}
	return false
}

// podsOf returns the pods of a device.
func (p *pods) podsOf(d *collector.Device, age time.Duration) (out []kube.Pod) {
	id, resource, place := d.UUID, "nvidia.com/gpu", "gpu"+d.GPU
	if d.Level == field.Instance {
		id, resource, place = d.Instance.UUID, "nvidia.com/mig-"+d.Instance.Profile, place+"-"+d.Instance.ID
	}
	for i := range p.o.perDevice {
		name := fmt.Sprintf("train-%s-%s-%d", p.host, place, i)
		share := id
		if p.o.perDevice > 1 {
			share = fmt.Sprintf("%s::%d", id, i)
		}
		out = append(out, kube.Pod{
			PodName: kube.PodName{
				Namespace: fmt.Sprintf("team-%d", (p.node+i)%namespaces),
				Name:      fmt.Sprintf("%s-%d", name, p.generation(name, age)),
			},
			Containers: []kube.Container{{
				Name: "main", Devices: []kube.Devices{{Resource: resource, IDs: []string{share}}},
			}},
		})
	}
	return out
}

// generation returns the number of pods that have ended in a place. The place's name spreads the ends over a lifetime.
func (p *pods) generation(place string, age time.Duration) int64 {
	if p.o.lifetime == 0 {
		return 0
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(place)) // Write never fails
	return int64((age + time.Duration(sum.Sum64()%uint64(p.o.lifetime))) / p.o.lifetime)
}
