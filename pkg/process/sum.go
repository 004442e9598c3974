package process

import (
	"cmp"
	"math"
	"slices"

	"warpgauge/pkg/collector/processes"
)

// tally sums the processes of one device. Its buffers are reused.
type tally struct {
	list  []processes.Process
	users []User
}

// add counts a process for its place.
func (t *tally) add(at *place, p *processes.Process) {
	u := t.user(at)
	u.Processes++
	u.SM += p.Busy // NaN makes NaN
	u.Memory += p.Memory
}

func (t *tally) user(at *place) *User {
	for i := range t.users {
		if u := &t.users[i]; u.ContainerID == at.container && u.PodUID == at.pod && u.Job == at.job {
			return u
		}
	}
	t.users = append(t.users, User{PodUID: at.pod, ContainerID: at.container, Job: at.job})
	return &t.users[len(t.users)-1]
}

// tooSmall takes the sums away, because processes may be missing in them.
func (t *tally) tooSmall() {
	for i := range t.users {
		t.users[i].SM, t.users[i].Memory = math.NaN(), math.NaN()
	}
}

// result returns the sorted users, which are before where they are equal to it.
func (t *tally) result(before []User) []User {
	slices.SortFunc(t.users, func(a, b User) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.ContainerID, b.ContainerID), cmp.Compare(a.Job, b.Job))
	})
	if sameUsers(t.users, before) {
		return before
	}
	return slices.Clone(t.users)
}

func sameUsers(a, b []User) bool { return slices.EqualFunc(a, b, sameUser) }

func sameUser(a, b User) bool {
	return a.PodUID == b.PodUID && a.ContainerID == b.ContainerID && a.Job == b.Job && a.Processes == b.Processes &&
		sameValue(a.SM, b.SM) && sameValue(a.Memory, b.Memory)
}

func sameValue(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || a != a && b != b
}
