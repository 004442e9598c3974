package kube

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"warpgauge/internal/testkit"
)

// part returns a slice of pool node-1. devices holds UUIDs by device name.
func part(generation int64, devices uuidsOf) slice {
	s := slice{driver: nvidiaDriver, pool: "node-1", generation: generation}
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
func uuids(devices map[DeviceName]SliceDevice) uuidsOf {
	by := uuidsOf{}
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
		{"two slices", map[string]slice{"a": part(1, uuidsOf{"gpu-0": "A"}), "b": part(1, uuidsOf{"gpu-1": "B"})}, nil, uuidsOf{"gpu-0": "A", "gpu-1": "B"}},
		{"an old slice is still there", map[string]slice{"a": part(1, uuidsOf{"gpu-0": "A", "gpu-1": "X"}), "b": part(2, uuidsOf{"gpu-0": "B"})}, nil, uuidsOf{"gpu-0": "B", "gpu-1": "X"}},
		{"three generations", map[string]slice{"a": part(3, uuidsOf{"gpu-0": "A"}), "b": part(1, uuidsOf{"gpu-1": "B", "gpu-2": "B"}), "c": part(2, uuidsOf{"gpu-1": "C"})}, nil,
			uuidsOf{"gpu-0": "A", "gpu-1": "C", "gpu-2": "B"}},
		{"a generation that was reset", map[string]slice{"a": part(0, uuidsOf{"gpu-0": "A"})}, uuidsOf{"gpu-0": "X"}, uuidsOf{"gpu-0": "A"}},
		{"the kubelet has deleted all", nil, uuidsOf{"gpu-0": "A"}, uuidsOf{"gpu-0": "A"}},
		{"a device is left out", map[string]slice{"a": part(2, uuidsOf{"gpu-0": "A"})}, uuidsOf{"gpu-0": "A", "gpu-1": "B"}, uuidsOf{"gpu-0": "A", "gpu-1": "B"}},
		{"named twice", map[string]slice{"a": part(1, uuidsOf{"gpu-0": "A"}), "b": part(1, uuidsOf{"gpu-0": "B"})}, nil, uuidsOf{"gpu-0": "B"}},
	} {
		before := joinSlices(map[string]slice{"was": part(0, test.before)}, nil)
		for range 3 { // map order is random
			testkit.Equal(t, test.name, test.want, uuids(joinSlices(test.slices, before)))
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
		devices = joinSlices(map[string]slice{"a": part(i, named)}, devices)
		testkit.Equal(t, "device that is there", "A", devices[DeviceName{nvidiaDriver, "node-1", fmt.Sprintf("gpu-%d-0", i)}].UUID)
	}
	testkit.Equal(t, "devices", maxWithdrawn+each, len(devices))
}
