package collectortest

import (
	"slices"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

func checkName(tb *subtest) {
	c := tb.rig.Factory()
	if got := c.Name(); got != tb.h.Name || got == "" {
		tb.Errorf("name of the collector: got %q, want %q", got, tb.h.Name)
	}
	if err := c.Close(); err != nil {
		tb.Errorf("close a collector that was never opened: %v", err)
	}
}

// checkDevices checks IDs, parents and the labels that a level needs.
func checkDevices(tb *subtest) {
	_, sources := tb.open()
	devices := allDevices(sources)
	levels := map[string]field.Level{}
	for _, d := range devices {
		if d.ID == "" {
			tb.Errorf("device without an id: %+v", d)
			continue
		}
		if _, again := levels[d.ID]; again {
			tb.Errorf("device id %q occurs twice", d.ID)
		}
		levels[d.ID] = d.Level
	}
	for _, d := range devices {
		if _, ok := levels[d.Parent]; d.Parent != "" && !ok {
			tb.Errorf("device %q: its parent %q is not among the devices", d.ID, d.Parent)
		}
		for what, text := range texts(d) {
			if !utf8.ValidString(text) {
				tb.Errorf("device %q: %s is not UTF-8: %q", d.ID, what, text)
			}
		}
		for _, what := range missing(d) {
			tb.Errorf("device %q of level %d lacks its %s", d.ID, d.Level, what)
		}
	}
}

// checkStable checks that a second Open returns the same devices in the same order.
func checkStable(tb *subtest) {
	c, first := tb.open()
	closeNow(tb, c)
	_, second := tb.open()
	if diff := cmp.Diff(allDevices(first), allDevices(second)); diff != "" {
		tb.Errorf("a second open found other devices (-first +second):\n%s", diff)
	}
}

// checkFacts checks the label fields.
func checkFacts(tb *subtest) {
	_, sources := tb.open()
	var names []string
	for _, f := range tb.h.Fields.Labels() {
		names = append(names, f.Name)
	}
	for _, d := range allDevices(sources) {
		seen := map[string]bool{}
		for _, fact := range d.Facts {
			if !slices.Contains(names, fact.Name) {
				tb.Errorf("device %q: fact %q is not a label field of the list", d.ID, fact.Name)
			}
			if seen[fact.Name] {
				tb.Errorf("device %q: fact %q occurs twice", d.ID, fact.Name)
			}
			seen[fact.Name] = true
			if fact.Value == "" || !utf8.ValidString(fact.Value) {
				tb.Errorf("device %q: fact %q has the value %q, want text or no fact", d.ID, fact.Name, fact.Value)
			}
		}
	}
}

func allDevices(sources []collector.Source) []collector.Device {
	var out []collector.Device
	for _, s := range sources {
		out = append(out, s.Devices()...)
	}
	return out
}

func texts(d collector.Device) map[string]string {
	out := map[string]string{
		"id": d.ID, "gpu": d.GPU, "UUID": d.UUID, "pci_bus_id": d.PCIBusID, "device": d.Node, "modelName": d.Model,
		"GPU_I_PROFILE": d.Instance.Profile, "GPU_I_ID": d.Instance.ID, "GPU_CI_ID": d.Instance.ComputeID, "MIG UUID": d.Instance.UUID, "alias": d.Alias,
	}
	for _, l := range d.Labels {
		out[l.Name] = l.Value
	}
	return out
}

// missing returns the labels that d lacks and that its level needs so that its series can be distinguished.
func missing(d collector.Device) []string {
	var out []string
	want := func(what, text string) {
		if text == "" {
			out = append(out, what)
		}
	}
	label := func(name string) { want(name, d.Label(name)) }
	switch d.Level {
	case field.GPU:
		want("gpu", d.GPU)
		want("UUID", d.UUID)
	case field.Instance:
		want("parent", d.Parent)
		want("gpu", d.GPU)
		want("UUID", d.UUID)
		want("GPU_I_ID", d.Instance.ID)
	case field.ComputeInstance:
		want("parent", d.Parent)
		want("GPU_CI_ID", d.Instance.ComputeID)
	case field.Link:
		want("parent", d.Parent)
		label("nvlink")
	case field.Switch:
		label("nvswitch")
	case field.CPU:
		label("cpu")
	case field.Core:
		want("parent", d.Parent)
		label("cpu")
		label("cpucore")
	case field.ConnectX:
		label("connectx")
	}
	return out
}
