package kube

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestHealthLogsEachChangeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		h := NewHealth("jobs", zap.New(core), "timeout")
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
		state := func(want State) {
			t.Helper()
			want.Name = "jobs"
			if got := h.State(); got != want {
				t.Errorf("state %+v, want %+v", got, want)
			}
		}
		none, gone := errors.New("no answer"), errors.New("no socket")
		state(State{})
		h.Failed("timeout", none)
		h.Failed("timeout", none)
		said("mapping failed; no answer yet")
		state(State{Tried: true, Failing: "timeout", Problem: none})
		h.Succeeded(3)
		h.Succeeded(4)
		said("mapping works again")
		time.Sleep(5 * time.Second)
		h.Failed("timeout", none)
		h.Failed("refused", gone)
		h.Failed("refused", gone)
		said("mapping failed; keeping the last answer", "mapping failed; keeping the last answer")
		state(State{Tried: true, Failing: "refused", Problem: gone, Age: 5 * time.Second})
		h.Succeeded(4)
		said("mapping works again")
		state(State{Tried: true})
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods, jobs := NewHealth(MappingPodResources, nil, "timeout", "refused"), NewHealth("hpc_jobs", nil)
		pods.Succeeded(7)
		time.Sleep(2 * time.Second)
		pods.Failed("timeout", errors.New("no answer"))
		pods.Counted("refused", 3)
		reg := prometheus.NewPedanticRegistry()
		if err := reg.Register(Healths{pods, jobs}); err != nil {
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
	})
}
