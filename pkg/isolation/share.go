package isolation

import (
	"fmt"

	"warpgauge/pkg/ring"
	"warpgauge/pkg/shm"
)

// makeRing makes the memory of a source and its ring. The parent only reads it
// from then on. The region's descriptor is open until CloseFD.
func makeRing(m *source) (*ring.Ring, *shm.Region, error) {
	region, err := shm.Create(ring.Words(m.rows, len(m.devices), len(m.columns)))
	if err != nil {
		return nil, nil, err
	}
	r := ring.New(region.Words(), m.rows, len(m.devices), len(m.columns))
	r.Keep(region)
	if err := region.Protect(); err != nil {
		_ = region.Close()
		return nil, nil, err
	}
	return r, region, nil
}

// attachRing opens the ring that makeRing has made, in the child. The
// descriptor is closed in any case.
func attachRing(fd int, m *source) (*ring.Ring, error) {
	region, err := shm.Open(fd)
	if err != nil {
		return nil, err
	}
	r, err := ring.Attach(region.Words(), m.rows, len(m.devices), len(m.columns))
	if err != nil {
		_ = region.Close()
		return nil, fmt.Errorf("use shared memory: %w", err)
	}
	r.Keep(region)
	return r, nil
}

// ringBytes is what the memory of a source takes.
func ringBytes(m *source) int {
	return 8 * ring.Words(m.rows, len(m.devices), len(m.columns))
}
