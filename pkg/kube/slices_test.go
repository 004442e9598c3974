package kube

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// part returns a slice of pool node-1. devices holds UUIDs by device name.
func part(generation, count int64, devices map[string]string) slice {
	s := slice{pool: poolName{nvidiaDriver, "node-1"}, generation: generation, count: count}
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		s.devices = append(s.devices, namedDevice{name, SliceDevice{UUID: devices[name]}})
	}
	return s
}

// joinSlices joins slices by the names of their objects.
func joinSlices(all map[string]slice, before map[DeviceName]SliceDevice) map[DeviceName]SliceDevice {
	objects := map[PodName]*apiObject{}
	for name, s := range all {
		objects[PodName{Name: name}] = &apiObject{slice: s}
	}
	return join(objects, before)
}

// uuids returns the UUIDs of joined devices by name.
func uuids(devices map[DeviceName]SliceDevice) map[string]string {
	by := map[string]string{}
	for name, d := range devices {
		by[name.Device] = d.UUID
	}
	return by
}

type uuidsOf = map[string]string

func TestGenerations(t *testing.T) {
	for _, test := range []struct {
		name   string
		slices map[string]slice
		before uuidsOf
		want   uuidsOf
	}{
		{"nothing", nil, nil, uuidsOf{}},
		{"one slice", map[string]slice{"a": part(1, 1, uuidsOf{"gpu-0": "A"})}, nil, uuidsOf{"gpu-0": "A"}},
		{"two slices", map[string]slice{"a": part(1, 2, uuidsOf{"gpu-0": "A"}), "b": part(1, 2, uuidsOf{"gpu-1": "B"})}, nil, uuidsOf{"gpu-0": "A", "gpu-1": "B"}},
		{"an old slice is still there", map[string]slice{"a": part(1, 1, uuidsOf{"gpu-0": "A", "gpu-9": "X"}), "b": part(2, 1, uuidsOf{"gpu-0": "B"})}, nil, uuidsOf{"gpu-0": "B"}},
		{"an old slice next to two new ones", map[string]slice{"a": part(1, 1, uuidsOf{"gpu-9": "X"}), "b": part(2, 2, uuidsOf{"gpu-0": "A"}), "c": part(2, 2, uuidsOf{"gpu-1": "B"})}, nil, uuidsOf{"gpu-0": "A", "gpu-1": "B"}},
		{"half of the new generation", map[string]slice{"b": part(1, 2, uuidsOf{"gpu-1": "B", "gpu-0": "X"}), "c": part(2, 2, uuidsOf{"gpu-0": "C"})}, nil, uuidsOf{"gpu-0": "C", "gpu-1": "B"}},
		{"half of the only generation", map[string]slice{"a": part(1, 2, uuidsOf{"gpu-0": "A"})}, nil, uuidsOf{"gpu-0": "A"}},
		{"three generations", map[string]slice{"a": part(3, 2, uuidsOf{"gpu-0": "A"}), "b": part(1, 1, uuidsOf{"gpu-1": "B", "gpu-2": "B"}), "c": part(2, 1, uuidsOf{"gpu-1": "C"})}, nil,
			uuidsOf{"gpu-0": "A", "gpu-1": "C", "gpu-2": "B"}},
		{"a generation that was reset", map[string]slice{"a": part(0, 1, uuidsOf{"gpu-0": "A"})}, uuidsOf{"gpu-0": "X"}, uuidsOf{"gpu-0": "A"}},
		{"the kubelet has deleted all", nil, uuidsOf{"gpu-0": "A"}, uuidsOf{"gpu-0": "A"}},
		{"a device is left out", map[string]slice{"a": part(2, 1, uuidsOf{"gpu-0": "A"})}, uuidsOf{"gpu-0": "A", "gpu-1": "B"}, uuidsOf{"gpu-0": "A", "gpu-1": "B"}},
		{"counters only", map[string]slice{"a": part(1, 2, nil), "b": part(1, 2, uuidsOf{"gpu-0": "A"})}, nil, uuidsOf{"gpu-0": "A"}},
		{"named twice", map[string]slice{"a": part(1, 2, uuidsOf{"gpu-0": "A"}), "b": part(1, 2, uuidsOf{"gpu-0": "B"})}, nil, uuidsOf{"gpu-0": "B"}},
		{"no count", map[string]slice{"a": part(1, 0, uuidsOf{"gpu-0": "A"})}, nil, uuidsOf{"gpu-0": "A"}},
	} {
		before := joinSlices(map[string]slice{"was": part(0, 1, test.before)}, nil)
		for range 3 { // map order is random
			if diff := cmp.Diff(test.want, uuids(joinSlices(test.slices, before))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.name, diff)
			}
		}
	}
}

func TestWithdrawnDevicesAreBounded(t *testing.T) {
	var devices map[DeviceName]SliceDevice
	const each = maxWithdrawn / 4
	for i := range int64(12) {
		named := uuidsOf{}
		for j := range each {
			named[fmt.Sprintf("gpu-%d-%d", i, j)] = "A"
		}
		devices = joinSlices(map[string]slice{"a": part(i, 1, named)}, devices)
		if d := devices[DeviceName{nvidiaDriver, "node-1", fmt.Sprintf("gpu-%d-0", i)}]; d.UUID != "A" {
			t.Error("a device that is there is not known")
		}
	}
	if len(devices) != maxWithdrawn+each {
		t.Errorf("%d devices, want %d", len(devices), maxWithdrawn+each)
	}
}
