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

// maxGone bounds how many pools without slices are remembered. A driver has one pool
// on a node, as a rule with the node's name.
const maxGone = 64

// join makes the devices of all pools out of their slices. A driver that changes
// a pool replaces its slices one after the other by some of a higher generation:
//
//   - where all slices of the highest generation are there, they alone count;
//   - while some are missing, what they say counts before older generations, and
//     those before what the pool was when it was last complete;
//   - a pool without slices stays as it was, as Withdrawn: kubelets and drivers
//     delete slices when they restart, and the claims of running pods still name its devices.
//
// whole keeps what each pool was when it was complete, from call to call.
func join(all map[string]slice, whole map[poolName][]namedDevice) map[DeviceName]Device {
	pools := make(map[poolName][]slice)
	for _, name := range slices.Sorted(maps.Keys(all)) { // in order, so that a device told twice is always the same
		s := all[name]
		pools[s.pool] = append(pools[s.pool], s)
	}
	devices := make(map[DeviceName]Device)
	put := func(pool poolName, from []namedDevice, withdrawn bool) {
		for _, d := range from {
			d.Withdrawn = withdrawn
			devices[DeviceName{Driver: pool.driver, Pool: pool.name, Device: d.name}] = d.Device
		}
	}
	for pool, parts := range pools {
		slices.SortStableFunc(parts, func(a, b slice) int { return cmp.Compare(a.generation, b.generation) })
		if newest := complete(parts); newest != nil {
			whole[pool] = newest
			put(pool, newest, false)
			continue
		}
		put(pool, whole[pool], false)
		for _, s := range parts {
			put(pool, s.devices, false)
		}
	}
	forget(whole, pools)
	for pool, was := range whole {
		if _, there := pools[pool]; !there {
			put(pool, was, true)
		}
	}
	return devices
}

// complete returns the devices of the highest generation if none of its slices is
// missing, else nil. parts are ordered by generation.
func complete(parts []slice) []namedDevice {
	highest := parts[len(parts)-1].generation
	devices, found, want := []namedDevice{}, int64(0), int64(0)
	for _, s := range parts {
		if s.generation == highest {
			devices, found, want = append(devices, s.devices...), found+1, max(want, s.count)
		}
	}
	if found < want {
		return nil
	}
	return devices
}

// forget drops pools that are gone where there are too many of them, by name: a
// driver that names its pools anew at each start must not fill the memory.
func forget(whole map[poolName][]namedDevice, there map[poolName][]slice) {
	var gone []poolName
	for pool := range whole {
		if _, ok := there[pool]; !ok {
			gone = append(gone, pool)
		}
	}
	if len(gone) <= maxGone {
		return
	}
	slices.SortFunc(gone, func(a, b poolName) int {
		return cmp.Or(cmp.Compare(a.driver, b.driver), cmp.Compare(a.name, b.name))
	})
	for _, pool := range gone[:len(gone)-maxGone] {
		delete(whole, pool)
	}
}
