package owner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
)

// wants compares the devices of a snapshot, without times.
func (w *world) wants(what string, s *Usage, want map[string]DeviceUse) {
	w.t.Helper()
	testkit.Equal(w.t, fmt.Sprintf("%s: devices", what), want, s.Devices, cmpopts.IgnoreFields(DeviceUse{}, "Time"), cmpopts.EquateNaNs(), cmpopts.EquateEmpty())
}

// at returns process 10 in the pod with this UID; "" if it is not located.
func at(uid string) Process {
	p := Process{Process: sampled(10, 1000, 10), PodUID: uid}
	if uid != "" {
		p.Name = "python3"
	}
	return p
}

// one returns a GPU with these processes.
func one(complete bool, list ...Process) map[string]DeviceUse {
	return map[string]DeviceUse{"GPU-0": {Complete: complete, Processes: list}}
}

func (w *world) failing(want string) {
	w.t.Helper()
	testkit.Equal(w.t, "failing", want, w.client.Health.State().Failing)
}

func TestProcessesAreLocated(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"}, []string{"GPU-1", "GPU-1/3"})
	w.run(10, time.Hour, inPodA)
	w.run(13, time.Hour, inPodB)
	w.run(14, time.Hour, onHost)
	w.run(15, time.Hour, inJob)
	w.sample(0, 0, 3, sampled(10, 1000, 10), sampled(14, 50, nan), sampled(15, nan, 7))
	w.sample(1, 0, 0)
	w.sample(1, 1, 1, sampled(13, 4096, 25))
	w.wants("all", w.look(), map[string]DeviceUse{
		"GPU-0": {Complete: true, Processes: []Process{
			at(uidA), {Process: sampled(14, 50, nan), Name: "python3"}, {Process: sampled(15, nan, 7), Name: "python3", Job: "42"},
		}},
		"GPU-1":   {Complete: true},
		"GPU-1/3": {Complete: true, Processes: []Process{{Process: sampled(13, 4096, 25), Name: "python3", PodUID: uidB}}},
	})
	w.failing("")
	got := w.client.On("GPU-1/3", w.now.Add(processListAge/2))
	testkit.ErrorIf(t, len(got) != 1 || w.changes != 1, "on demand: %+v after %d polls, want the last poll's", got, w.changes)
	got = w.client.On("GPU-1/3", w.now.Add(processListAge))
	testkit.ErrorIf(t, len(got) != 1 || w.changes != 2, "on demand: %+v after %d polls, want another poll", got, w.changes)
}

func TestADeviceIsCompleteOnlyIfAllIsKnown(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"})
	w.run(10, time.Hour, inPodA)
	f := func(what string, want DeviceUse) {
		t.Helper()
		w.wants(what, w.look(), map[string]DeviceUse{"GPU-0": want})
	}
	a := []Process{at(uidA)}
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	f("one of one", DeviceUse{Complete: true, Processes: a})
	w.sample(0, 0, -1, sampled(10, 1000, 10))
	f("the library does not say how many: a sum might be too small", DeviceUse{Partial: true, Processes: a})
	w.sample(0, 0, 2, sampled(10, 1000, 10))
	f("one of two: a sum would be too small", DeviceUse{Partial: true, Processes: a})
	collector.BlankProcesses(w.rows[0])
	f("the library does not report processes", DeviceUse{Partial: true})
	w.sample(0, 0, 2, sampled(10, 1000, 10), sampled(99, 1, 1))
	f("a process ended before the look", DeviceUse{Processes: append(a, Process{Process: sampled(99, 1, 1)})})
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	f("and is in the next row no more", DeviceUse{Complete: true, Processes: a})
	w.failing("")
}

// TestProcessesEnd: a process counts for the pod in which it ran at the sample, even if its PID is reused later.
func TestProcessesEnd(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"})
	sample := func(what, uid string) {
		t.Helper()
		w.sample(0, 0, 1, sampled(10, 1000, 10))
		w.wants(what, w.look(), one(uid != "", at(uid)))
	}
	sample("ended before any poll saw it", "")
	w.run(10, machineUptime, inPodA)
	sample("started after the sample, and the previous process was never seen", "")
	w.run(10, time.Hour, inPodA)
	sample("known", uidA)
	w.run(10, machineUptime, inPodB) // the sample lists the previous process
	sample("another one has started after the sample", uidA)
	w.run(10, 2*time.Hour, inPodB)
	sample("another one", uidB)
	w.end(10)
	sample("ended", uidB)
	w.wants("no new row", w.lookAgain(time.Second), one(true, at(uidB)))
	w.sample(0, 0, 0)
	w.wants("gone", w.look(), one(true))
	testkit.Equal(t, "processes that are remembered", 0, len(w.client.locations.known))
}

// TestNamespaces: in another PID namespace no process is attributed; in another cgroup namespace a process in our own
// group may belong to a pod.
func TestNamespaces(t *testing.T) {
	try := func(prepare func(w *world), failing string, complete bool, uid string) *world {
		t.Helper()
		w := newWorld(t, []string{"GPU-0"})
		prepare(w)
		w.run(10, time.Hour, inPodA)
		w.sample(0, 0, 1, sampled(10, 1000, 10))
		w.wants(failing, w.look(), one(complete, at(uid)))
		w.failing(failing)
		return w
	}
	try(func(w *world) { w.namespace("pid:[4026532584]", firstCgroupNamespace) }, ReasonNoHostPID, false, "")
	w := try(func(w *world) { testkit.Must(w.t, os.Remove(filepath.Join(w.root, "self", "ns", "pid"))) }, ReasonNoProc, false, "")
	w.namespace(firstPIDNamespace, firstCgroupNamespace)
	w.wants("the namespace is known", w.lookAgain(time.Second), one(true, at(uidA)))
	w.failing("")
	w = try(func(w *world) { w.namespace(firstPIDNamespace, "cgroup:[4026532586]") }, "", true, uidA)
	w.run(11, time.Hour, "0::/")
	w.sample(0, 0, 2, sampled(10, 1000, 10), sampled(11, 1, 1))
	w.wants("in our own group", w.look(), one(false, at(uidA), Process{Process: sampled(11, 1, 1), Name: "python3"}))
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
		testkit.Equal(t, fmt.Sprintf("lines after %d looks at %v", looks, list), lines, w.logs.FilterMessageSnippet("pods of some GPU processes").Len())
	}
	f(processPatience-1, "", 0, sampled(11, 1, 1))
	f(1, ReasonUnplaced, 0, sampled(11, 1, 1)) // for example hidepid
	f(1, "", 0)
	f(processPatience-1, "", 0, sampled(10, 1, 1), sampled(11, 1, 1))
	f(10, "", 1, sampled(10, 1, 1), sampled(11, 1, 1)) // for example a process that the driver has not released
	f(1, "", 0, sampled(10, 1, 1))
	f(processPatience, "", 1, sampled(10, 1, 1), sampled(11, 1, 1))
}

// TestSources: the first source of a device counts, an invalid one is skipped, and old rows count for nothing.
func TestSources(t *testing.T) {
	w := newWorld(t)
	w.wants("no source", w.look(), nil)
	w.failing(ReasonNoSource)
	w.publish([]string{"GPU-0"}, []string{"GPU-0", "GPU-1"})
	w.run(10, time.Hour, inPodA)
	w.sample(0, 0, 1, sampled(10, 1000, 10))
	w.sample(1, 0, 0)
	w.look()
	w.now = w.now.Add(9 * time.Second)
	w.sample(1, 1, 0)
	w.wants("the first counts", w.look(), map[string]DeviceUse{"GPU-0": one(true, at(uidA))["GPU-0"], "GPU-1": {Complete: true}})
	w.failing("")
	w.wants("one is old", w.lookAgain(time.Second), map[string]DeviceUse{"GPU-1": {Complete: true}})
	w.wants("all are old", w.lookAgain(10*time.Second), nil)
	w.failing(ReasonStale)

	v := *w.board.Load()
	stranger := *v.Sources[0]
	stranger.Columns = stranger.Columns[1:]
	v.Sources[0] = &stranger
	w.board.Store(&v)
	w.sample(1, 0, 0)
	w.wants("an invalid source", w.look(), one(true))
	w.look()
	testkit.Equal(t, "lines in the log", 1, w.logs.FilterMessageSnippet("skipping an invalid source").Len())
}

// TestUsageIsReadWhilePolling is mostly for the race detector. Run polls each second.
func TestUsageIsReadWhilePolling(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"})
	w.run(10, time.Hour, inPodA)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		err := w.client.Run(ctx)
		testkit.ErrorIf(t, err != nil || w.changes != 5, "Run: %v; %d polls in 4.5 s, want 5", err, w.changes)
	})
	done, read := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		for {
			for id, use := range w.client.Snapshot().Devices {
				testkit.ErrorIf(t, id != "GPU-0" || len(use.Processes) != 1 || use.Processes[0].PodUID != uidA, "%s: %+v", id, use)
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
