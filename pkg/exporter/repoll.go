package exporter

import (
	"context"
	"slices"
	"time"

	"warpgauge/pkg/kube"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/view"
)

// suspicionPeriod is how often suspicion compares devices and processes with the
// mappings. It triggers no polls more often than this.
const suspicionPeriod = time.Second

// suspicion has the kubelet and the container runtime asked at once when what they
// said last seems to be old: devices have come or gone, or there is a container that they
// have not reported.
type suspicion struct {
	kubelet    suspect                 // nil: not asked
	runtime    suspect                 // nil: not asked
	containers func() *kube.Containers // of the runtime
	processes  func() *owner.Usage     // nil: not known
	board      *view.Board
	unknown    func() []owner.Unmatched

	// Of run's goroutine.
	version   uint64 // of the View
	unmatched []owner.Unmatched
	strangers []string // ids of containers and uids of pods that are not known, sorted
}

// suspect can be asked to poll at once; that never blocks.
type suspect interface{ Suspect() }

var (
	_ suspect = (*kube.Kubelet)(nil)
	_ suspect = (*kube.Runtime)(nil)
)

// run compares until ctx ends.
func (s *suspicion) run(ctx context.Context) error {
	tick := time.NewTicker(suspicionPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.check()
		}
	}
}

// check asks for each reason once, when it appears: an id that stays unknown does
// not become known by asking again and again.
func (s *suspicion) check() {
	moved, strangers := s.moved(), s.newStrangers()
	if s.kubelet != nil && (moved || strangers) {
		s.kubelet.Suspect()
	}
	if s.runtime != nil && strangers {
		s.runtime.Suspect()
	}
}

// moved says that devices have changed, or that the kubelet names others than
// there are.
func (s *suspicion) moved() bool {
	version, unmatched := s.board.Load().Version, s.unknown()
	isNew := func(u owner.Unmatched) bool { return !slices.Contains(s.unmatched, u) }
	moved := version != s.version || slices.ContainsFunc(unmatched, isNew)
	s.version, s.unmatched = version, unmatched
	return moved
}

// newStrangers says that a process runs in a container, or a pod, that was not
// there at the last check and that is not known.
func (s *suspicion) newStrangers() bool {
	if s.processes == nil {
		return false
	}
	var now []string
	for _, use := range s.processes().Devices {
		for _, u := range use.Users {
			if u.PodUID != "" && !s.known(u) {
				now = append(now, u.PodUID+"/"+u.ContainerID)
			}
		}
	}
	slices.Sort(now)
	now = slices.Compact(now)
	isNew := func(id string) bool { _, known := slices.BinarySearch(s.strangers, id); return !known }
	found := slices.ContainsFunc(now, isNew)
	s.strangers = now
	return found
}

// known asks the runtime's last answer. Without a runtime, every process that
// appears may be of a pod that the kubelet has just started.
func (s *suspicion) known(u owner.User) bool {
	if s.containers == nil {
		return false
	}
	_, known := s.containers().ByID[u.ContainerID]
	return known
}
