package main

import (
	"slices"
	"testing"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// divided is a node of a whole GPU and one with two instances.
func divided() *view.Board {
	board := new(view.Board)
	board.Store(&view.View{Version: 1, Sources: []*view.Source{
		{Devices: []collector.Device{
			{ID: "GPU-0", UUID: "GPU-0", GPU: "0", Level: field.GPU},
			{ID: "GPU-0/link0", Parent: "GPU-0", GPU: "0", Level: field.Link},
		}},
		{Devices: []collector.Device{
			{ID: "GPU-1", UUID: "GPU-1", GPU: "1", Level: field.GPU},
			{ID: "GPU-1/1", Parent: "GPU-1", UUID: "GPU-1", Instance: collector.Instance{ID: "1", Profile: "1g.10gb", UUID: "MIG-1"}, GPU: "1", Level: field.Instance},
			{ID: "GPU-1/2", Parent: "GPU-1", UUID: "GPU-1", Instance: collector.Instance{ID: "2", Profile: "1g.10gb", UUID: "MIG-2"}, GPU: "1", Level: field.Instance},
		}},
	}})
	return board
}

func (p *pods) ids() (out []string) {
	for _, pod := range p.snapshot.Load().Pods {
		for _, d := range pod.Containers[0].Devices {
			out = append(out, d.Resource+" "+d.IDs[0])
		}
	}
	slices.Sort(out)
	return out
}

func TestWhoHasWhat(t *testing.T) {
	f := func(perDevice int, want ...string) {
		t.Helper()
		p := newPods(podOptions{perDevice: perDevice}, "node", 0, divided())
		if !p.answer(p.start) {
			t.Error("nothing was answered")
		}
		if got := p.ids(); !slices.Equal(got, want) {
			t.Errorf("%d pods per device have %q, want %q", perDevice, got, want)
		}
		if p.answer(p.start.Add(time.Hour)) {
			t.Error("the same answer was told again")
		}
	}
	f(1, "nvidia.com/gpu GPU-0", "nvidia.com/mig-1g.10gb MIG-1", "nvidia.com/mig-1g.10gb MIG-2")
	f(2, "nvidia.com/gpu GPU-0::0", "nvidia.com/gpu GPU-0::1", "nvidia.com/mig-1g.10gb MIG-1::0", "nvidia.com/mig-1g.10gb MIG-1::1",
		"nvidia.com/mig-1g.10gb MIG-2::0", "nvidia.com/mig-1g.10gb MIG-2::1")
}

// Within a lifetime each place has another pod exactly once, at a time of its own.
func TestPodsEnd(t *testing.T) {
	const lifetime = 100 * time.Second
	p := newPods(podOptions{perDevice: 1, lifetime: lifetime}, "node", 0, divided())
	p.answer(p.start)
	first := p.snapshot.Load()
	changes := 0
	for at := time.Second; at <= lifetime; at += time.Second {
		if p.answer(p.start.Add(at)) {
			changes++
		}
	}
	last := p.snapshot.Load()
	if changes != 3 || last.Version != first.Version+3 {
		t.Errorf("%d changes, versions %d to %d, want 3 changes", changes, first.Version, last.Version)
	}
	for _, pod := range last.Pods {
		for _, old := range first.Pods {
			if pod.Name == old.Name {
				t.Errorf("pod %s outlived its time", pod.Name)
			}
		}
	}
}
