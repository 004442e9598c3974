package exporter

import (
	"context"
	"slices"
	"time"

	"warpgauge/pkg/kube"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/view"
)

// triggerPeriod is how often repollTrigger compares devices and processes with the
// mappings. It triggers no polls more often than this.
const triggerPeriod = time.Second

// repollTrigger makes the kubelet and container runtime clients poll soon when their last answer looks out of date:
// devices have come or gone, or an unreported container appears.
type repollTrigger struct {
	kubelet    repoller                // nil: not asked
	runtime    repoller                // nil: not asked
	containers func() *kube.Containers // of the runtime
	processes  func() *owner.Usage     // nil: not known
	board      *view.Board
	unknown    func() []owner.Unmatched

	// Of run's goroutine.
	version    uint64 // of the View
	unmatched  []owner.Unmatched
	unknownIDs []string // unknown ids of containers and uids of pods, sorted
}

// repoller is a client that can poll soon. PollSoon never blocks.
type repoller interface{ PollSoon() }

var (
	_ repoller = (*kube.Kubelet)(nil)
	_ repoller = (*kube.Runtime)(nil)
)

// run compares until ctx ends.
func (s *repollTrigger) run(ctx context.Context) error {
	tick := time.NewTicker(triggerPeriod)
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

// check polls for each reason once, when it appears: an id that stays unknown would not become known by
// polling again.
func (s *repollTrigger) check() {
	moved, unknownIDs := s.moved(), s.newUnknown()
	if s.kubelet != nil && (moved || unknownIDs) {
		s.kubelet.PollSoon()
	}
	if s.runtime != nil && unknownIDs {
		s.runtime.PollSoon()
	}
}

// moved reports whether devices have changed, or the kubelet names other devices than the collectors.
func (s *repollTrigger) moved() bool {
	version, unmatched := s.board.Load().Version, s.unknown()
	isNew := func(u owner.Unmatched) bool { return !slices.Contains(s.unmatched, u) }
	moved := version != s.version || slices.ContainsFunc(unmatched, isNew)
	s.version, s.unmatched = version, unmatched
	return moved
}

// newUnknown reports whether a process runs in an unknown container or pod that was not there at the last
// check.
func (s *repollTrigger) newUnknown() bool {
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
	isNew := func(id string) bool { _, known := slices.BinarySearch(s.unknownIDs, id); return !known }
	found := slices.ContainsFunc(now, isNew)
	s.unknownIDs = now
	return found
}

// known looks in the runtime's last answer. Without a runtime, any new process may belong to a pod that the
// kubelet has just started.
func (s *repollTrigger) known(u owner.User) bool {
	if s.containers == nil {
		return false
	}
	_, known := s.containers().ByID[u.ContainerID]
	return known
}
