package mapping

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestHealthTellsEachChangeOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	h := New(PodResources, zap.New(core), "timeout")
	now := time.Unix(1000, 0)
	h.now = func() time.Time { return now }
	said := func(want ...string) {
		t.Helper()
		var got []string
		for _, e := range logs.TakeAll() {
			got = append(got, e.Message)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	}
	if _, ok := h.Age(); ok {
		t.Error("there is an age before the first answer")
	}
	h.Failed("timeout", errors.New("no answer"))
	h.Failed("timeout", errors.New("no answer"))
	said("mapping fails, there is none yet")
	h.Succeeded(3)
	h.Succeeded(4)
	said("mapping is up to date again")
	now = now.Add(5 * time.Second)
	h.Failed("timeout", errors.New("no answer"))
	h.Failed("refused", errors.New("no socket"))
	h.Failed("refused", errors.New("no socket"))
	said("mapping fails, the last one is kept", "mapping fails, the last one is kept")
	if age, ok := h.Age(); !ok || age != 5*time.Second {
		t.Errorf("age %v, %v, want 5s", age, ok)
	}
	if got := h.Failing(); got != "refused" {
		t.Errorf("failing for %q, want refused", got)
	}
	h.Succeeded(4)
	said("mapping is up to date again")
}

func TestProblem(t *testing.T) {
	h := New(HPCJobs, nil)
	f := func(tried bool, want error) {
		t.Helper()
		if h.Tried() != tried || !errors.Is(h.Problem(), want) || (want == nil) != (h.Problem() == nil) {
			t.Errorf("tried %v with problem %v, want %v and %v", h.Tried(), h.Problem(), tried, want)
		}
	}
	f(false, nil)
	gone := errors.New("no directory")
	h.Failed("missing", gone)
	f(true, gone)
	h.Succeeded(1)
	f(true, nil)
	if h.Name() != HPCJobs {
		t.Errorf("name %q, want %q", h.Name(), HPCJobs)
	}
}

func TestMetrics(t *testing.T) {
	pods, jobs := New(PodResources, nil, "timeout", "refused"), New(HPCJobs, nil)
	pods.now = func() time.Time { return time.Unix(1000, 0) }
	pods.Succeeded(7)
	pods.now = func() time.Time { return time.Unix(1002, 0) }
	pods.Failed("timeout", errors.New("no answer"))
	pods.Counted("refused", 3)
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(Set{pods, jobs}); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP warpgauge_mapping_age_seconds Time since a mapping was last confirmed. Absent before the first answer.
# TYPE warpgauge_mapping_age_seconds gauge
warpgauge_mapping_age_seconds{mapping="pod_resources"} 2
# HELP warpgauge_mapping_entries Entries of the mapping in use: containers with devices, pods, devices of resource slices, containers, device files, processes.
# TYPE warpgauge_mapping_entries gauge
warpgauge_mapping_entries{mapping="hpc_jobs"} 0
warpgauge_mapping_entries{mapping="pod_resources"} 7
# HELP warpgauge_mapping_errors_total Failed attempts to learn who uses which device, by reason.
# TYPE warpgauge_mapping_errors_total counter
warpgauge_mapping_errors_total{mapping="pod_resources",reason="refused"} 3
warpgauge_mapping_errors_total{mapping="pod_resources",reason="timeout"} 1
# HELP warpgauge_mapping_up Whether the last attempt to learn who uses which device succeeded. 0: the last good answer is kept.
# TYPE warpgauge_mapping_up gauge
warpgauge_mapping_up{mapping="hpc_jobs"} 0
warpgauge_mapping_up{mapping="pod_resources"} 0
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestAClockThatIsSetBackGivesNoNegativeAge(t *testing.T) {
	h := New(HPCJobs, nil)
	h.now = func() time.Time { return time.Unix(1000, 0) }
	h.Succeeded(1)
	h.now = func() time.Time { return time.Unix(900, 0) }
	if age, ok := h.Age(); !ok || age != 0 {
		t.Errorf("age %v, %v, want 0", age, ok)
	}
}
