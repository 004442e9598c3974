package process

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector/processes"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// followed is a source on the board.
type followed struct {
	*view.Source
	blocks []int // where the block of each device begins in a row
	row    ring.Row
}

// outcome is what a look came to.
type outcome struct {
	devices  int // that are fresh
	stale    int
	placed   int // processes
	unplaced int
	err      error // of one that could not be placed
}

// look reads the newest rows and publishes what they say.
func (c *Client) look(now time.Time) {
	c.follow()
	before := c.snap.Load()
	next := &Snapshot{Version: before.Version, Time: now, Devices: make(map[string]DeviceUse, len(before.Devices))}
	err := c.namespaces()
	var o outcome
	for _, s := range c.sources {
		if !s.Ring.Latest(&s.row) {
			continue
		}
		c.source(s, now, before, next, &o)
	}
	c.table.end()
	changed := !sameDevices(before.Devices, next.Devices)
	if changed {
		next.Version++
	}
	c.snap.Store(next)
	c.tell(err, o)
	if changed {
		c.o.OnChange()
	}
}

// follow takes over what is on the board now.
func (c *Client) follow() {
	v := c.board.Load()
	if v == c.view {
		return
	}
	c.view, c.sources = v, c.sources[:0]
	for _, s := range v.Sources {
		blocks, err := processes.Blocks(len(s.Devices), s.Columns)
		if err != nil {
			c.log.Error("source of processes is left out", zap.String("collector", s.Collector), zap.Error(err))
			continue
		}
		c.sources = append(c.sources, &followed{Source: s, blocks: blocks})
	}
}

// namespaces looks, until it could, which namespaces we have.
func (c *Client) namespaces() (err error) {
	if c.pidSpace == "" {
		c.pidSpace, c.table.nested, err = c.table.proc.namespaces()
	}
	return err
}

// source adds the devices of a source. Of two sources with one device the first
// on the board counts.
func (c *Client) source(s *followed, now time.Time, before, next *Snapshot, o *outcome) {
	for i := range s.Devices {
		id := s.Devices[i].ID
		if _, has := next.Devices[id]; has || s.blocks[i] < 0 || s.row.Stamps[i] == 0 {
			continue
		}
		sampled := time.Unix(0, s.row.Stamps[i])
		if now.Sub(sampled) > c.o.StaleAfter {
			o.stale++
			continue
		}
		o.devices++
		block := s.row.Cells[s.blocks[i]:][:processes.Width]
		next.Devices[id] = c.device(block, sampled, now, before.Devices[id].Users, o)
	}
}

// device sums the processes of one device.
func (c *Client) device(block []float64, sampled, now time.Time, before []User, o *outcome) DeviceUse {
	t := &c.tally
	var count int
	t.list, count = processes.Get(t.list[:0], block)
	t.users = t.users[:0]
	use := DeviceUse{Time: sampled}
	if c.pidSpace != firstPIDNamespace {
		use.Unplaced = len(t.list)
		return use
	}
	for i := range t.list {
		p := &t.list[i]
		use.Occupancy = use.Occupancy || p.Flags&processes.Occupancy != 0
		at, err := c.table.find(p.PID, sampled.UnixNano(), now)
		if err == nil && at.unknown {
			err = errInside
		}
		if err != nil {
			use.Unplaced++
			o.unplaced++
			o.err = fmt.Errorf("find container of process %d: %w", p.PID, err)
			continue
		}
		o.placed++
		t.add(at, p)
	}
	whole := count == len(t.list)
	if !whole {
		t.tooSmall()
	}
	use.Complete = whole && use.Unplaced == 0
	use.Users = t.result(before)
	return use
}

// errInside is what a cgroup namespace of our own makes of a process in our own
// container.
var errInside = errors.New("it is in our own control group or below it, and from inside a cgroup namespace that names no pod")

// tell says how it went.
func (c *Client) tell(err error, o outcome) {
	c.complain(o)
	switch h := c.o.Health; {
	case err != nil:
		h.Failed(ReasonNoProc, err)
	case c.pidSpace != firstPIDNamespace:
		h.Failed(ReasonNoHostPID, fmt.Errorf("processes are numbered by the machine, and this one has a PID namespace of its own, %s: "+
			"set hostPID: true for the pod, or --pid=host for the container", c.pidSpace))
	case len(c.sources) == 0:
		h.Failed(ReasonNoSource, errors.New("no collector tells which processes use the GPUs"))
	case o.devices == 0:
		h.Failed(ReasonStale, fmt.Errorf("no device told its processes within the last %s, %d did before", c.o.StaleAfter, o.stale))
	case c.unplaced >= patience && o.placed == 0:
		h.Failed(ReasonUnplaced, fmt.Errorf("none of the %d processes on the GPUs can be placed (is /proc mounted with hidepid?), one of them: %w", o.unplaced, o.err))
	default:
		h.Succeeded(len(c.table.known))
		h.Counted(ReasonUnplaced, o.unplaced)
	}
}

// patience is how many looks in a row may have processes that cannot be placed
// before it is worth a word: some end between a sample and the look.
const patience = 3

// complain logs once that some processes, not all, cannot be placed.
func (c *Client) complain(o outcome) {
	if o.unplaced == 0 {
		c.unplaced = 0
		return
	}
	if c.unplaced++; c.unplaced == patience && o.placed > 0 {
		c.log.Warn("the containers of some processes on GPUs cannot be found: who uses these devices is not complete",
			zap.Int("processes", o.unplaced), zap.Error(o.err))
	}
}

// sameDevices compares everything but times.
func sameDevices(a, b map[string]DeviceUse) bool {
	if len(a) != len(b) {
		return false
	}
	for id := range a {
		x, y := a[id], b[id]
		if _, has := b[id]; !has || x.Complete != y.Complete || x.Occupancy != y.Occupancy || x.Unplaced != y.Unplaced || !sameUsers(x.Users, y.Users) {
			return false
		}
	}
	return true
}
