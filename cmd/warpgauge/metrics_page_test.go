package main

//go:generate go test -count=1 -run ^TestMetricsPage$ . -update

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"warpgauge/extensions/health"
	"warpgauge/extensions/remote"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/session"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"warpgauge/collectors/fake"
	"warpgauge/collectors/nvml"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/selfmetrics"
	"warpgauge/pkg/supervisor"
	"warpgauge/pkg/view"
)

// TestMetricsPage compares docs/metrics.md with the registry of an exporter of simulated GPUs after
// a sample and a scrape, so that every metric has a series. Rewrite with -update. It is a test and
// not part of internal/docgen, because only this package assembles an exporter.
func TestMetricsPage(t *testing.T) {
	golden.Check(t, "../../docs/metrics.md", metricsHead+metricsTable(append(sampleFamilies(t), signFamilies(t)...)))
}

const metricsHead = `# warpgauge's own metrics

This page is generated from an exporter with one simulated GPU by ` + "`go generate ./cmd/warpgauge`" + `; a test fails when it
is out of date. The metrics are on the same page as those of the GPUs. By default these are the set lean: what alerts
need, and ` + "`process_cpu_seconds_total` and `process_resident_memory_bytes`" + `. ` + "`--exporter-metrics=full`" + ` adds the
others, and client_golang's ` + "`go_*` and `process_*`; `--exporter-metrics=none`" + ` leaves all out.

`

// metricsTable lists families by name with type, labels and help. It omits vectors without series.
func metricsTable(families []*dto.MetricFamily) string {
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	var b strings.Builder
	b.WriteString("| Metric | Type | Set | Labels | Meaning |\n|---|---|---|---|---|\n")
	for _, f := range families {
		var labels []string
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels = append(labels, "`"+l.GetName()+"`")
			}
		}
		slices.Sort(labels)
		set := "full"
		if selfmetrics.IsLean(f.GetName()) {
			set = "lean"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), set,
			strings.Join(slices.Compact(labels), ", "), cell.Replace(f.GetHelp()))
	}
	return b.String()
}

// docsCounters includes accumulated fields: a histogram and a count.
const docsCounters = "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_POWER_USAGE, histogram, p\nDCGM_EXP_XID_ERRORS_COUNT, gauge, x\n"

// sampleFamilies gathers the metrics of an exporter with a collector that is up, a lost device, and
// a collector without its library, so that faults also have series.
func sampleFamilies(t *testing.T) (families []*dto.MetricFamily) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "0"), "1\n") // a job, so that a device has an owner
	kmsg := tempFile(t, "kmsg", "")
	a, cfg := wanted(t, "--remote-config=apply", "--remote-url=opamp+http://fleet", "--hpc-job-mapping-dir="+dir, "--absent-fields",
		"--expected-gpus=2", "--recorder-directory="+filepath.Join(dir, "recordings"), "--health-directory=", "--kernel-log="+kmsg)
	cfg.Web.ConfigFile = "web.yml" // never read, but enables the metrics of logins
	files := a.NewFiles(cfg, "", nil)
	parsed := files.Parse(&config.Content{CSV: []byte(docsCounters), Name: "counters.csv"})
	must(t, parsed.Err)
	node, err := fake.Factory(fake.Options{Devices: 2, Spec: &fake.Spec{
		Profile: "dgx-a100-mig", // so that there are instances
		Faults:  []fake.Fault{{Kind: fake.Lost, GPUs: []fake.Span{{First: 1, Last: 1}}}},
	}})
	must(t, err)
	missing := func() collector.Collector {
		return nvml.New(nvml.Options{Root: "/nonexistent", Library: "/nonexistent"})
	}
	a.Vendors = func(*config.Config, time.Time, *zap.Logger) ([]exporter.Vendor, error) {
		return []exporter.Vendor{{Name: "fake", Open: func() collector.Collector { return metered{node()} }}, {Name: "nvml", Open: missing}}, nil
	}
	p, err := a.NewPipeline(cfg, parsed.Fields, zap.NewNop())
	must(t, err)
	// Nothing is isolated here, and there is no failover.
	p.Registry.MustRegister(supervisor.Examples("dcgm"))
	p.Registry.MustRegister(supervisor.NewFailover(supervisor.FailoverOptions{Primary: "dcgm", Secondary: "nvml"}))
	p.ServeLists(parsed, files)
	must(t, p.Extend())
	p.Registry.MustRegister(exporter.NewBacklog(io.Discard).Metric())
	must(t, p.Sample(t.Context(), 10*time.Second, func(ctx context.Context) error {
		for _, h := range p.Owners.Health {
			h.Succeeded(0) // there is an age then
		}
		witness(t, p, kmsg)
		p.AddPages()
		if out := extension[*remote.Extension](a).Remote().Deliver(ctx, &lists.Offer{Content: []byte("# warpgauge: until=2100-01-01T00:00:00Z\n" + docsCounters)}); out.Err != nil { // so that it has an end
			return out.Err
		}
		p.NewServer()
		all, err := p.Registry.Gather()
		families = slices.DeleteFunc(all, func(f *dto.MetricFamily) bool {
			return !strings.HasPrefix(f.GetName(), "warpgauge_") || strings.HasPrefix(f.GetName(), "warpgauge_sign_") // signFamilies has all
		})
		return err
	}))
	return families
}

// witness lets the kernel's log report an XID, and GPUs be missing.
func witness(t *testing.T, p *exporter.Pipeline, kmsg string) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, s := range p.Extended {
		if slices.Contains([]string{"health", "kernel log", "GPUs on the PCI bus"}, s.Name) {
			wg.Go(func() { _ = s.Run(ctx) }) // it ends with its context
		}
	}
	uptime, err := os.ReadFile("/proc/uptime")
	must(t, err)
	seconds, _, _ := strings.Cut(string(uptime), ".")
	log, err := os.OpenFile(kmsg, os.O_APPEND|os.O_WRONLY, 0)
	must(t, err)
	defer log.Close()
	n := 0
	eventually.True(t, "an XID", func() bool {
		n++
		_, err := fmt.Fprintf(log, "3,%d,%s000000,-;NVRM: Xid (PCI:0000:aa:00): 79, pid=7, name=train, GPU has fallen off the bus.\n", n, seconds) // earlier lines than the log's opening do not count
		must(t, err)
		all, err := p.Registry.Gather()
		must(t, err)
		wanted := map[string]bool{"warpgauge_kernel_log_events_total": true, "warpgauge_device_health": true}
		for _, f := range all {
			delete(wanted, f.GetName())
		}
		return len(wanted) == 0
	})
}

// signFamilies gathers the metric of early signs.
func signFamilies(t *testing.T) []*dto.MetricFamily {
	now := time.Unix(1e9, 0)
	gpu := session.DeviceStatus{Device: collector.Device{ID: "GPU-0", Level: field.GPU, GPU: "0"}, LastSample: now}
	w := health.New(health.Options{
		Rows: rows.New(&view.Board{}, nil), Rules: health.Table(), Logger: zap.NewNop(),
		Status: func() []session.CollectorStatus {
			return []session.CollectorStatus{{Name: "fake", Up: true, Devices: []session.DeviceStatus{gpu}}}
		},
	})
	w.Observe(health.Observation{Reason: "throttled", Device: "GPU-0", Time: now})
	w.Sync(now)
	reg := prometheus.NewRegistry()
	reg.MustRegister(w)
	all, err := reg.Gather()
	must(t, err)
	return slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "warpgauge_sign_") })
}

// metered is a collector whose sources report what their library calls cost, as those of vendors' libraries do.
type metered struct{ collector.Collector }

func (m metered) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	sources, err := m.Collector.Open(ctx, fields)
	for i, src := range sources {
		sources[i] = meteredSource{src}
	}
	return sources, err
}

type meteredSource struct{ collector.Source }

var _ collector.CallMeter = meteredSource{}

// Columns adds the one from which gaps in XIDs are known, which NVIDIA's sources have.
func (m meteredSource) Columns() []collector.Column {
	return slices.Concat(m.Source.Columns(), []collector.Column{{Field: field.XIDsSince}})
}

func (m meteredSource) Sample(row []float64, due []bool) error {
	n := len(row) - 1
	row[n] = 1
	return m.Source.Sample(row[:n:n], due[:n:n])
}

func (meteredSource) Calls() []collector.CallCost { return []collector.CallCost{{Call: "read"}} }
