package kube

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
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
			testkit.Equal(t, "log", want, got)
		}
		state := func(want State) {
			t.Helper()
			want.Name = "jobs"
			got := h.State()
			testkit.ErrorIf(t, got != want, "state %+v, want %+v", got, want)
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
		reg.MustRegister(Healths{pods, jobs})
		families, err := reg.Gather()
		var got strings.Builder
		for _, f := range families {
			f.Help = nil
			_, e := expfmt.MetricFamilyToText(&got, f)
			err = errors.Join(err, e)
		}
		want := `# TYPE warpgauge_mapping_age_seconds gauge
warpgauge_mapping_age_seconds{mapping="pod_resources"} 2
# TYPE warpgauge_mapping_entries gauge
warpgauge_mapping_entries{mapping="hpc_jobs"} 0
warpgauge_mapping_entries{mapping="pod_resources"} 7
# TYPE warpgauge_mapping_errors_total counter
warpgauge_mapping_errors_total{mapping="pod_resources",reason="refused"} 3
warpgauge_mapping_errors_total{mapping="pod_resources",reason="timeout"} 1
# TYPE warpgauge_mapping_up gauge
warpgauge_mapping_up{mapping="hpc_jobs"} 0
warpgauge_mapping_up{mapping="pod_resources"} 0
`
		diff := cmp.Diff(want, got.String())
		testkit.ErrorIf(t, diff != "" || err != nil, "%v (-want +got):\n%s", err, diff)
	})
}
