package owner

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"

	"warpgauge/pkg/kube"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
)

// TestMetrics compares everything except times with testdata/metrics.prom.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	r := shared(t, func(o *Options) { o.Registerer = registry })
	r.know("ml/train-0 uid-t team=vision pod=x a.b=1 a-b=2")
	pods := append(r.pods.Load().Pods, podsOf("ml/lost/main: nvidia.com/gpu "+uuid(8)+" dev-1 "+mig(8), "ml/twin/main: claim=c gpu.nvidia.com node-1 gpu-9")...)
	r.pods.Store(&kube.Allocations{Version: 100, Time: time.Now(), Pods: pods})
	r.Refresh(r.used.Load().Time)

	var text bytes.Buffer
	families := testkit.Get(registry.Gather())(t)
	for _, f := range families {
		if f.GetName() != "warpgauge_owner_table_build_duration_seconds" {
			testkit.Get(expfmt.MetricFamilyToText(&text, f))(t)
		}
	}
	golden.Check(t, filepath.Join("testdata", "metrics.prom"), text.String())
}

// TestNobodyIsCountedBeforeAllHaveAnswered: 0 would say that a device is free.
func TestNobodyIsCountedBeforeAllHaveAnswered(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	r := newRig(func(o *Options) { o.Registerer, o.Claims = registry, true }, machine()...)
	r.pods.Store(&kube.Allocations{})
	f := func(who string, want bool) {
		t.Helper()
		r.Refresh(time.Now())
		n, err := testutil.GatherAndCount(registry, "warpgauge_device_owners")
		testkit.ErrorIf(t, err != nil || (n > 0) != want, "%s: %d counts of owners, %v", who, n, err)
	}
	f("no answer", false)
	r.pods.Store(&kube.Allocations{Version: 1, Time: time.Now()})
	f("the kubelet alone", false)
	r.schedule(nil)
	f("the kubelet and the job directory", false)
	r.know()
	f("all", true)
}

// TestMetricsNeverRepeat: a registry rejects a page with duplicate series.
func TestMetricsNeverRepeat(t *testing.T) {
	twin := gpu(0)
	twin.ID = "another" // different ID, same labels
	registry := prometheus.NewPedanticRegistry()
	r := newRig(func(o *Options) { o.Registerer = registry }, append(machine(), twin)...).
		give("ml/a/main: nvidia.com/gpu "+uuid(0)+" nvidia0", "ml/a/\xff: nvidia.com/gpu "+uuid(0), "ml/a/\xfe: nvidia.com/gpu "+uuid(0))
	r.schedule(map[string][]string{"0": {"1"}})
	_, err := registry.Gather()
	testkit.ErrorIf(t, err != nil, "%v", err)
}
