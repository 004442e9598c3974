package owner

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/pkg/collector"
)

// wants compares the devices of a snapshot, without times.
func (w *world) wants(s *Usage, want map[string]DeviceUse) {
	w.t.Helper()
	if diff := cmp.Diff(want, s.Devices, cmpopts.IgnoreFields(DeviceUse{}, "Time"), cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); diff != "" {
		w.t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// ofA1 and ofB1 are users with one process.
var (
	ofA1 = User{PodUID: uidA, ContainerID: ctrA, Processes: 1, SM: 10, Memory: 1000}
	ofB1 = User{PodUID: uidB, ContainerID: ctrB, Processes: 1, SM: 10, Memory: 1000}
)

// one returns a GPU whose processes are all known.
func one(users ...User) map[string]DeviceUse {
	return map[string]DeviceUse{"GPU-0": {Complete: true, Users: users}}
}

func (w *world) failing(want string) {
	w.t.Helper()
	if got := w.health.State().Failing; got != want {
		w.t.Errorf("failing: %q, want %q", got, want)
	}
}

func TestProcessesAreSummedByContainer(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"}, []string{"GPU-1", "GPU-1/3"})
	w.run(10, time.Hour, inPodA)
	w.run(11, time.Hour, inPodA)
	w.run(12, time.Hour, inPodA2)
	w.run(13, time.Hour, inPodB)
	w.run(14, time.Hour, onHost)
	w.run(15, time.Hour, inJob)
	w.sample(0, 0, 6, sampled(10, 1000, 10), sampled(11, 500, 5), sampled(12, 200, 2), sampled(13, 100, 1), sampled(14, 50, nan), sampled(15, nan, 7))
	w.sample(1, 0, 0)
	w.sample(1, 1, 1, sampled(13, 4096, 25))
	w.wants(w.look(), map[string]DeviceUse{
		"GPU-0": {Complete: true, Users: []User{
			{Processes: 1, SM: nan, Memory: 50},
			{Job: "42", Processes: 1, SM: 7, Memory: nan},
			{PodUID: uidB, ContainerID: ctrB, Processes: 1, SM: 1, Memory: 100},
			{PodUID: uidA, ContainerID: ctrB, Processes: 1, SM: 2, Memory: 200},
			{PodUID: uidA, ContainerID: ctrA, Processes: 2, SM: 15, Memory: 1500},
		}},
		"GPU-1":   {Complete: true},
		"GPU-1/3": {Complete: true, Users: []User{{PodUID: uidB, ContainerID: ctrB, Processes: 1, SM: 25, Memory: 4096}}},
	})
	w.failing("")
}

func TestADeviceIsCompleteOnlyIfAllIsKnown(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"})
	w.run(10, time.Hour, inPodA)
	a := ofA1
	f := func(what string, want DeviceUse) {
		t.Helper()
		w.t.Log(what)
		w.wants(w.look(), map[string]DeviceUse{"GPU-0": want})
	}
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	f("one of one", DeviceUse{Complete: true, Users: []User{a}})
	cut := a
	cut.SM, cut.Memory = nan, nan
	w.sample(0, 0, -1, sampled(10, 1000, 10))
	f("the library does not say how many: a sum might be too small", DeviceUse{Users: []User{cut}})
	w.sample(0, 0, 2, sampled(10, 1000, 10))
	f("one of two: a sum would be too small", DeviceUse{Users: []User{cut}})
	collector.BlankProcesses(w.rows[0])
	f("the library does not report processes", DeviceUse{})
	w.sample(0, 0, 2, sampled(10, 1000, 10), sampled(99, 1, 1))
	f("a process ended before the look", DeviceUse{Users: []User{a}})
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	f("and is in the next row no more", DeviceUse{Complete: true, Users: []User{a}})
	w.failing("")
}

// TestProcessesEndAndMove: a process counts for the container in which it ran at the sample, even if its PID is reused
// later.
func TestProcessesEndAndMove(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"})
	sample := func(want ...User) {
		t.Helper()
		w.sample(0, 0, 1, sampled(10, 1000, 10))
		w.wants(w.look(), one(want...))
	}
	w.run(10, time.Hour, inPodA)
	sample(ofA1)
	w.run(10, 2*time.Hour, inPodB) // started after the row that was already read
	w.wants(w.lookAgain(time.Second), one(ofA1))
	sample(ofB1)
	w.run(10, machineUptime, inPodA) // started after the sample: the sample lists the previous process
	sample(ofB1)
	w.run(10, 2*time.Hour, inPodA) // moved to another group, which is read only every locationAge
	sample(ofB1)
	w.now = w.now.Add(locationAge)
	sample(ofA1)
	w.end(10)
	sample(ofA1)
	w.wants(w.lookAgain(time.Second), one(ofA1))
	w.sample(0, 0, 0)
	w.wants(w.look(), one())
	if n := len(w.client.locations.known); n != 0 {
		t.Errorf("%d processes are remembered, want 0", n)
	}
	w.sample(0, 0, 1, sampled(11, 1000, 10)) // ended before any poll saw it
	w.wants(w.look(), map[string]DeviceUse{"GPU-0": {}})
	w.run(11, machineUptime, inPodA) // started after the sample, and the previous process was never seen
	w.sample(0, 0, 1, sampled(11, 1000, 10))
	w.wants(w.look(), map[string]DeviceUse{"GPU-0": {}})
	w.run(11, machineUptime-time.Second, inPodA)
	w.sample(0, 0, 1, sampled(11, 1000, 10))
	w.wants(w.look(), one(ofA1))
}

// TestNamespaces: in another PID namespace no process is attributed; in another cgroup namespace a process in our own
// group may belong to a pod.
func TestNamespaces(t *testing.T) {
	try := func(prepare func(w *world), failing string, want DeviceUse) *world {
		t.Helper()
		w := newWorld(t, []string{"GPU-0"})
		prepare(w)
		w.run(10, time.Hour, inPodA)
		w.sample(0, 0, 1, sampled(10, 1000, 10))
		w.wants(w.look(), map[string]DeviceUse{"GPU-0": want})
		w.failing(failing)
		return w
	}
	try(func(w *world) { w.namespace("pid:[4026532584]", firstCgroupNamespace) }, ReasonNoHostPID, DeviceUse{})
	w := try(func(w *world) { w.must(os.Remove(filepath.Join(w.root, "self", "ns", "pid"))) }, ReasonNoProc, DeviceUse{})
	w.namespace(firstPIDNamespace, firstCgroupNamespace)
	w.wants(w.lookAgain(time.Second), one(ofA1))
	w.failing("")
	w = try(func(w *world) { w.namespace(firstPIDNamespace, "cgroup:[4026532586]") }, "", DeviceUse{Complete: true, Users: []User{ofA1}})
	w.run(11, time.Hour, "0::/")
	w.sample(0, 0, 2, sampled(10, 1000, 10), sampled(11, 1, 1))
	w.wants(w.look(), map[string]DeviceUse{"GPU-0": {Users: []User{ofA1}}})
}

func TestProcessesThatCannotBeLocated(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"})
	w.run(10, time.Hour, inPodA)
	f := func(looks int, want string, lines int, list ...collector.Process) {
		t.Helper()
		w.logs.TakeAll()
		for range looks {
			w.sample(0, 0, len(list), list...)
			w.look()
		}
		w.failing(want)
		if got := w.logs.FilterMessageSnippet("containers of some GPU processes").Len(); got != lines {
			t.Errorf("%d looks at %v: %d lines, want %d", looks, list, got, lines)
		}
	}
	f(processPatience-1, "", 0, sampled(11, 1, 1))
	f(1, ReasonUnplaced, 0, sampled(11, 1, 1)) // for example hidepid
	f(1, "", 0)
	f(processPatience-1, "", 0, sampled(10, 1, 1), sampled(11, 1, 1))
	f(10, "", 1, sampled(10, 1, 1), sampled(11, 1, 1)) // for example a process that the driver has not released
	f(1, "", 0, sampled(10, 1, 1))
	f(processPatience, "", 1, sampled(10, 1, 1), sampled(11, 1, 1))
}

func TestOldRowsAreNoUse(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"}, []string{"GPU-1"})
	w.run(10, time.Hour, inPodA)
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	w.look()
	w.now = w.now.Add(9 * time.Second)
	w.sample(1, 0, 0)
	w.wants(w.look(), map[string]DeviceUse{
		"GPU-0": {Complete: true, Users: []User{ofA1}},
		"GPU-1": {Complete: true},
	})
	w.wants(w.lookAgain(time.Second), map[string]DeviceUse{"GPU-1": {Complete: true}})
	w.wants(w.lookAgain(10*time.Second), nil)
	w.failing(ReasonStale)
}

func TestSourcesComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.wants(w.look(), nil)
	w.failing(ReasonNoSource)
	w.publish([]string{"GPU-0"}, []string{"GPU-0"})
	w.run(10, time.Hour, inPodA)
	w.sample(0, 0, 0)
	w.sample(1, 0, 1, sampled(10, 1000, 10))
	w.wants(w.look(), one()) // the first source counts
	w.failing("")
	w.publish()
	w.wants(w.look(), nil)
}

func TestColumnsOfAStrangerAreLeftOut(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"}, []string{"GPU-1"})
	v := *w.board.Load()
	stranger := *v.Sources[0]
	stranger.Columns = stranger.Columns[1:]
	v.Sources[0] = &stranger
	w.board.Store(&v)
	w.sample(0, 0, 0)
	w.sample(1, 0, 0)
	w.wants(w.look(), map[string]DeviceUse{"GPU-1": {Complete: true}})
	w.look()
	if n := w.logs.FilterMessageSnippet("skipping an invalid source").Len(); n != 1 {
		t.Errorf("%d lines in the log, want 1", n)
	}
}

// TestUsageIsReadWhilePolling is mostly for the race detector. Run polls each second.
func TestUsageIsReadWhilePolling(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"})
	w.run(10, time.Hour, inPodA)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		if err := w.client.Run(ctx); err != nil || w.changes != 5 {
			t.Errorf("Run: %v; %d polls in 4.5 s, want 5", err, w.changes)
		}
	})
	done := make(chan struct{})
	read := make(chan struct{})
	go func() {
		defer close(read)
		for {
			s := w.client.Snapshot()
			for id, use := range s.Devices {
				if id != "GPU-0" || len(use.Users) != 1 || use.Users[0].PodUID != uidA {
					t.Errorf("%s: %+v", id, use)
				}
			}
			select {
			case <-done:
				return
			default:
			}
		}
	}()
	for i := range 200 {
		w.sample(0, 0, 1, sampled(10, float64(i), 1))
		w.look()
	}
	close(done)
	<-read
}
