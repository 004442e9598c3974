package process

import (
	"errors"
	"time"
)

// recheck is how often the control group of a process that is known is read
// again: pam_slurm_adopt and administrators move living processes.
const recheck = 30 * time.Second

// startSlack is by how much a process may seem to have started after the sample
// that lists it: the sample's time is from before the library call.
const startSlack = 100 * time.Millisecond

// table finds the places of processes and remembers them. What it holds is
// bounded by the processes of one look. It belongs to one goroutine.
type table struct {
	proc   *procfs
	uptime func() time.Duration
	nested bool // in a cgroup namespace of our own
	known  map[int]*known
	round  uint64
}

// known is a process whose place is known.
type known struct {
	start     uint64 // ticks; with the number it identifies the process
	place     place
	confirmed int64     // Unix ns: it was alive then
	read      time.Time // when place was read
	round     uint64    // last one that asked for it
}

func newTable(root string) *table {
	return &table{proc: newProcfs(root), uptime: uptime, known: map[int]*known{}}
}

// find returns the place of a process that was in a sample of the time given.
// A process that has ended since is found if it was ever seen: it is what the
// sample means. Errors: errGone, for a process that never was; others.
func (t *table) find(pid int, sampled int64, now time.Time) (*place, error) {
	k := t.known[pid]
	if k != nil {
		k.round = t.round
		if sampled <= k.confirmed {
			return &k.place, nil
		}
	}
	start, err := t.proc.start(pid)
	if err == nil && t.startedAfter(start, sampled, now) {
		err = errGone // its number was given anew
	}
	if err == nil && k != nil && k.start == start && now.Sub(k.read) < recheck {
		k.confirmed = now.UnixNano()
		return &k.place, nil
	}
	var p place
	if err == nil {
		p, err = t.read(pid, start)
	}
	if err != nil && k != nil {
		return &k.place, nil
	}
	if err != nil {
		return nil, err
	}
	if k == nil {
		k = &known{round: t.round}
		t.known[pid] = k
	}
	k.start, k.place, k.confirmed, k.read = start, p, now.UnixNano(), now
	return &k.place, nil
}

var errNoPath = errors.New("no control group")

// read reads a place, and makes sure that it is of the process that started then.
func (t *table) read(pid int, start uint64) (place, error) {
	file, err := t.proc.file(pid, "cgroup")
	if err != nil {
		return place{}, err
	}
	p, ok := parseCgroup(file, t.nested)
	if !ok {
		return place{}, errNoPath
	}
	again, err := t.proc.start(pid)
	if err == nil && again != start {
		err = errGone
	}
	return p, err
}

// startedAfter reports whether a process is younger than the sample.
func (t *table) startedAfter(start uint64, sampled int64, now time.Time) bool {
	up := t.uptime()
	if up == 0 {
		return false
	}
	age := now.Sub(time.Unix(0, sampled))
	return time.Duration(start)*(time.Second/ticksPerSecond) > up-age+startSlack
}

// end forgets the processes that nobody has asked for since the last end.
func (t *table) end() {
	for pid, k := range t.known {
		if k.round != t.round {
			delete(t.known, pid)
		}
	}
	t.round++
}
