package isolation

import (
	"errors"
	"fmt"
	"slices"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// granted is the parent's answer to a source: a descriptor or a problem.
type granted struct {
	fd  int
	err error
}

// newRing asks the parent for memory and waits for it. It is called by the
// sampler when a source is bound.
func (c *child) newRing(src collector.Source, rows int) (*ring.Ring, error) {
	answer := make(chan granted, 1)
	c.mu.Lock()
	c.lastID++
	m := source{id: c.lastID, rows: rows, devices: src.Devices(), columns: src.Columns()}
	c.waiting[m.id] = answer
	c.bound = append(c.bound, m.id)
	c.mu.Unlock()

	r, err := c.await(&m, answer)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, m.id)
	if err != nil {
		// The binding fails with it, so those before it are of no use either.
		_ = c.conn.send(kindRelease, &release{c.bound})
		for r, id := range c.ids {
			if slices.Contains(c.bound, id) {
				delete(c.ids, r)
			}
		}
		c.bound = nil
		return nil, fmt.Errorf("get shared memory: %w", err)
	}
	c.ids[r] = m.id
	return r, nil
}

func (c *child) await(m *source, answer <-chan granted) (*ring.Ring, error) {
	if len(m.devices) > maxDevices || len(m.columns) > maxColumns || m.rows > maxRows {
		return nil, fmt.Errorf("a source of %d devices, %d columns and %d rows: at most %d, %d and %d are shared between processes",
			len(m.devices), len(m.columns), m.rows, maxDevices, maxColumns, maxRows)
	}
	if err := c.conn.send(kindSource, m); err != nil {
		return nil, err
	}
	select {
	case g := <-answer:
		if g.err != nil {
			return nil, g.err
		}
		return attachRing(g.fd, m)
	case <-c.gone:
		return nil, errOrphaned
	}
}

// onMemory hands what the parent has made to the one that waits.
func (c *child) onMemory(payload []byte) error {
	var m memory
	if err := unmarshal(payload, &m); err != nil {
		return err
	}
	var g granted
	if m.problem != "" {
		g.err = errors.New(m.problem)
	} else {
		g.fd, g.err = c.conn.takeFile()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := c.waiting[m.id]
	if answer == nil {
		return fmt.Errorf("memory for source %d, which nobody waits for", m.id)
	}
	answer <- g // has room for one, and there is one
	return nil
}

// publish tells the parent which sources are in service. It is called by the
// sampler, one call at a time.
func (c *child) publish(v *view.View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var m service
	c.shown = c.shown[:0:0]
	kept := make(map[*ring.Ring]uint64, len(v.Sources))
	oldest := ^uint64(0)
	for _, src := range v.Sources {
		version := c.versionOf(src.Fields)
		id := c.ids[src.Ring]
		kept[src.Ring] = id
		oldest = min(oldest, version)
		m.sources = append(m.sources, inService{id, version})
		c.shown = append(c.shown, shownSource{id, src.Devices})
	}
	c.ids, c.bound = kept, nil
	if len(v.Sources) > 0 {
		c.lists = slices.DeleteFunc(c.lists, func(l versionedList) bool { return l.version < oldest })
	}
	_ = c.conn.send(kindService, &m) // if the parent is gone, listen notices
}

// versionOf finds a list by where its fields are: the sampler hands on what it got.
func (c *child) versionOf(list field.List) uint64 {
	for _, l := range slices.Backward(c.lists) {
		if len(l.list.Fields) == len(list.Fields) && (len(list.Fields) == 0 || &l.list.Fields[0] == &list.Fields[0]) {
			return l.version
		}
	}
	return 0
}
