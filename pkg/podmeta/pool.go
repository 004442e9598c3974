package podmeta

import (
	"cmp"
	"maps"
	"slices"
)

// slice is what is kept of a ResourceSlice.
type slice struct {
	pool       poolName
	generation int64
	count      int64 // slices that the pool consists of at this generation
	devices    []namedDevice
}

type poolName struct{ driver, name string }

type namedDevice struct {
	name string
	Device
}

// maxWithdrawn bounds how many devices are remembered that no slice names any more:
// a driver that names its devices anew at each start must not fill the memory.
const maxWithdrawn = 1024

// join makes devices out of slices. before is what it returned last.
//
// A driver changes a pool by replacing its slices, one after the other, by some of a
// higher generation. Where all slices of the highest generation are there, they alone
// count. While some are missing, devices that they do not name are taken from
// lower generations.
//
// A device that was named before and is not now stays, as Withdrawn, because claims
// of running pods still name it: the kubelet deletes all slices of a node when it
// starts, and those of a driver that went away; NVIDIA's driver 25.12 leaves out
// devices that are not healthy.
func join(all map[string]slice, before map[DeviceName]Device) map[DeviceName]Device {
	devices := make(map[DeviceName]Device, len(before))
	for pool, parts := range pools(all) {
		for _, s := range counting(parts) {
			for _, d := range s.devices {
				devices[DeviceName{Driver: pool.driver, Pool: pool.name, Device: d.name}] = d.Device
			}
		}
	}
	withdraw(devices, before)
	return devices
}

// pools sorts the slices of each pool by generation, then by name, so that a device
// that is named twice is always the same one.
func pools(all map[string]slice) map[poolName][]slice {
	by := make(map[poolName][]slice)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		by[s.pool] = append(by[s.pool], s)
	}
	for _, parts := range by {
		slices.SortStableFunc(parts, func(a, b slice) int { return cmp.Compare(a.generation, b.generation) })
	}
	return by
}

// counting returns those of a pool's slices that count, the most important last.
func counting(parts []slice) []slice {
	highest, from := parts[len(parts)-1], len(parts)-1
	want := highest.count
	for from > 0 && parts[from-1].generation == highest.generation {
		from--
		want = max(want, parts[from].count)
	}
	if newest := parts[from:]; int64(len(newest)) >= want {
		return newest
	}
	return parts
}

// withdraw adds to devices those of before that it lacks, up to a limit, in the
// order of their names.
func withdraw(devices, before map[DeviceName]Device) {
	var gone []DeviceName
	for name := range before {
		if _, ok := devices[name]; !ok {
			gone = append(gone, name)
		}
	}
	slices.SortFunc(gone, func(a, b DeviceName) int {
		return cmp.Or(cmp.Compare(a.Driver, b.Driver), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Device, b.Device))
	})
	for _, name := range gone[:min(len(gone), maxWithdrawn)] {
		d := before[name]
		d.Withdrawn = true
		devices[name] = d
	}
}
