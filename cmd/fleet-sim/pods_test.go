package main

import (
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
