package owner

import (
	"os"
	"path/filepath"
	"testing"
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
	if got := w.health.State().Failing; got != "" {
		t.Errorf("failing: %q", got)
	}
}

func TestADeviceIsCompleteOnlyIfAllIsKnown(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"})
	w.run(10, time.Hour, inPodA)
	a := User{PodUID: uidA, ContainerID: ctrA, Processes: 1, SM: 10, Memory: 1000}
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
	if got := w.health.State().Failing; got != "" {
		t.Errorf("failing: %q", got)
	}
}

// TestAProcessThatEnds was its container's when the sample was taken.
func TestAProcessThatEnds(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"})
	w.run(10, time.Hour, inPodA)
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	w.look()
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	w.end(10)
	want := map[string]DeviceUse{"GPU-0": {Complete: true, Users: []User{{PodUID: uidA, ContainerID: ctrA, Processes: 1, SM: 10, Memory: 1000}}}}
	w.wants(w.look(), want)
	w.wants(w.lookAgain(time.Second), want)
	w.sample(0, 0, 0)
	w.wants(w.look(), map[string]DeviceUse{"GPU-0": {Complete: true}})
	if n := len(w.client.locations.known); n != 0 {
		t.Errorf("%d processes are remembered, want 0", n)
	}
}

func TestANumberThatIsReused(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"})
	user := func(pod, container string) map[string]DeviceUse {
		return map[string]DeviceUse{"GPU-0": {Complete: true, Users: []User{{PodUID: pod, ContainerID: container, Processes: 1, SM: 10, Memory: 1000}}}}
	}
	w.run(10, time.Hour, inPodA)
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	w.wants(w.look(), user(uidA, ctrA))

	// The process of the row that is already read: it has ended, and its number
	// belongs to another.
	w.run(10, 2*time.Hour, inPodB)
	w.wants(w.lookAgain(time.Second), user(uidA, ctrA))

	// In the next row it is the other.
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	w.wants(w.look(), user(uidB, ctrB))

	// One that ended before it was ever seen is not known.
	w.sample(0, 0, 1, sampled(11, 1000, 10))
	w.wants(w.look(), map[string]DeviceUse{"GPU-0": {}})
}

func TestAProcessThatIsMoved(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"})
	w.run(10, time.Hour, onHost)
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	w.look()
	w.run(10, time.Hour, inJob)
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	if got := w.look().Devices["GPU-0"].Users[0].Job; got != "" {
		t.Errorf("job %q at once: control groups are read at every look", got)
	}
	w.now = w.now.Add(locationAge)
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	if got := w.look().Devices["GPU-0"].Users[0].Job; got != "42" {
		t.Errorf("job %q after %v, want 42", got, locationAge)
	}
}

// TestNamespaces: in a PID namespace of our own nothing is attributed; from a cgroup namespace of our own what is in our
// own group may be in a pod.
func TestNamespaces(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"})
	failing := func(want string) {
		t.Helper()
		if got := w.health.State().Failing; got != want {
			t.Errorf("failing: %q, want %q", got, want)
		}
	}
	w.namespace("pid:[4026532584]", firstCgroupNamespace)
	w.run(10, time.Hour, inPodA) // another process than the one that the driver means
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	w.wants(w.look(), map[string]DeviceUse{"GPU-0": {}})
	failing(ReasonNoHostPID)

	w = newWorld(t, []string{"GPU-0"})
	w.must(os.Remove(filepath.Join(w.root, "self", "ns", "pid")))
	w.run(10, time.Hour, inPodA)
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	w.wants(w.look(), map[string]DeviceUse{"GPU-0": {}})
	failing(ReasonNoProc)
	w.namespace(firstPIDNamespace, firstCgroupNamespace)
	if s := w.lookAgain(time.Second); !s.Devices["GPU-0"].Complete {
		t.Errorf("readable again: %+v", s.Devices)
	}
	failing("")

	w = newWorld(t, []string{"GPU-0"})
	w.namespace(firstPIDNamespace, "cgroup:[4026532586]")
	w.run(10, time.Hour, "0::/../../kubepods-pod<UID_A>.slice/cri-containerd-<CTR-A>.scope")
	w.run(11, time.Hour, "0::/")
	w.sample(0, 0, 2, sampled(10, 1000, 10), sampled(11, 1, 1))
	w.wants(w.look(), map[string]DeviceUse{"GPU-0": {Users: []User{{PodUID: uidA, ContainerID: ctrA, Processes: 1, SM: 10, Memory: 1000}}}})
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
		if got := w.health.State().Failing; got != want {
			t.Errorf("%d looks at %v: failing %q, want %q", looks, list, got, want)
		}
		if got := w.logs.FilterMessageSnippet("containers of some GPU processes").Len(); got != lines {
			t.Errorf("%d looks at %v: %d lines, want %d", looks, list, got, lines)
		}
	}
	f(processPatience-1, "", 0, sampled(11, 1, 1))
	f(1, ReasonUnplaced, 0, sampled(11, 1, 1)) // hidepid, say
	f(1, "", 0)
	f(processPatience-1, "", 0, sampled(10, 1, 1), sampled(11, 1, 1))
	f(10, "", 1, sampled(10, 1, 1), sampled(11, 1, 1)) // one that the driver has not released, say
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
		"GPU-0": {Complete: true, Users: []User{{PodUID: uidA, ContainerID: ctrA, Processes: 1, SM: 10, Memory: 1000}}},
		"GPU-1": {Complete: true},
	})
	w.wants(w.lookAgain(time.Second), map[string]DeviceUse{"GPU-1": {Complete: true}})
	w.wants(w.lookAgain(10*time.Second), nil)
	if got := w.health.State().Failing; got != ReasonStale {
		t.Errorf("failing: %q, want %q", got, ReasonStale)
	}
}

func TestSourcesComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.wants(w.look(), nil)
	if got := w.health.State().Failing; got != ReasonNoSource {
		t.Errorf("failing: %q, want %q", got, ReasonNoSource)
	}
	w.publish([]string{"GPU-0"}, []string{"GPU-0"})
	w.run(10, time.Hour, inPodA)
	w.sample(0, 0, 0)
	w.sample(1, 0, 1, sampled(10, 1000, 10))
	w.wants(w.look(), map[string]DeviceUse{"GPU-0": {Complete: true}}) // the first source's
	if got := w.health.State().Failing; got != "" {
		t.Errorf("failing: %q", got)
	}
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
