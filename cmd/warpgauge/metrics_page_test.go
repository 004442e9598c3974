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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"warpgauge/collectors/fake"
	"warpgauge/collectors/nvml"
	"warpgauge/extensions/health/kernellog"
	"warpgauge/pkg/cmdline"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/selfmetrics"
	"warpgauge/pkg/session"
	"warpgauge/pkg/supervisor"
	"warpgauge/pkg/view"
)

// TestMetricsPage compares docs/metrics.md with the registry of an exporter of simulated
// GPUs that has sampled and served once, so that every metric has a series. Rewrite it
// with -update. It is a test, not part of internal/docgen, because only this package
// knows how an exporter is put together.
func TestMetricsPage(t *testing.T) {
	families, err := sampleFamilies(t.Context())
	must(t, err)
	early, err := signFamilies()
	must(t, err)
	families = append(families, early...)
	got, path := metricsHead+metricsTable(families), "../../docs/metrics.md"
	if *update {
		must(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/metrics.md is out of date, run go generate ./cmd/warpgauge (-file +registry):\n%s", diff)
	}
}

const metricsHead = `# warpgauge's own metrics

This page is generated from an exporter with one simulated GPU by ` + "`go generate ./cmd/warpgauge`" + `; a test fails when it
is out of date. The metrics are on the same page as those of the GPUs. By default these are the set lean: what alerts
need, and ` + "`process_cpu_seconds_total` and `process_resident_memory_bytes`" + `. ` + "`--exporter-metrics=full`" + ` adds the
others, and client_golang's ` + "`go_*` and `process_*`; `--exporter-metrics=none`" + ` leaves all out.

`

// metricsTable lists the families by name with type, labels and help. A family is known
// by its series: a vector without any is not in it.
func metricsTable(families []*dto.MetricFamily) string {
	families = slices.Clone(families)
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

// docsCounters has fields that are accumulated, too: a histogram and a count.
const docsCounters = "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_POWER_USAGE, histogram, p\nDCGM_EXP_XID_ERRORS_COUNT, gauge, x\n"

// sampleFamilies gathers the own metrics of an exporter with one collector that
// is up, one device that is lost and one collector that finds no library, so
// that problems have series as well.
func sampleFamilies(ctx context.Context) ([]*dto.MetricFamily, error) {
	jobs, err := os.MkdirTemp("", "jobs") // so that a device has an owner
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(jobs) }()
	if err := os.WriteFile(filepath.Join(jobs, "0"), []byte("1\n"), 0o600); err != nil {
		return nil, err
	}
	cfg := docsConfig(jobs)
	a := &app{streams: streams{out: io.Discard, err: io.Discard}, build: cmdline.ReadBuild("")}
	files := newFiles(a, cfg, "", nil)
	parsed := files.Parse(&config.Content{CSV: []byte(docsCounters), Name: "counters.csv"})
	if parsed.Err != nil {
		return nil, parsed.Err
	}
	node, err := fake.Factory(fake.Options{Devices: 2, Spec: &fake.Spec{
		Profile: "dgx-a100-mig", // so that there are instances
		Faults:  []fake.Fault{{Kind: fake.Lost, GPUs: []fake.Span{{First: 1, Last: 1}}}},
	}})
	if err != nil {
		return nil, err
	}
	node = metering(node)
	missing := func() collector.Collector {
		return nvml.New(nvml.Options{Root: "/nonexistent", Library: "/nonexistent"})
	}

	p, err := newPipeline(a, cfg, []vendor{{name: "fake", open: node}, {name: "nvml", open: missing}}, parsed.Fields, zap.NewNop())
	if err != nil {
		return nil, err
	}
	// Nothing is isolated here, and there is no failover.
	p.registry.MustRegister(supervisor.Examples("dcgm"))
	p.registry.MustRegister(supervisor.NewFailover(supervisor.FailoverOptions{Primary: "dcgm", Secondary: "nvml", Publish: func([]*view.Source) {}}))
	desk := newDesk(parsed, p, files, zap.NewNop())
	fromServer, err := newRemote(ctx, a, p, desk, zap.NewNop())
	if err != nil {
		return nil, err
	}
	p.registry.MustRegister(desk)
	p.registry.MustRegister(newBacklog(io.Discard).metric())
	var families []*dto.MetricFamily
	err = sampleOnce(ctx, p.engine, p.owners, 10*time.Second, func(context.Context, []session.CollectorStatus) error {
		for _, h := range p.owners.health {
			h.Succeeded(0) // there is an age then
		}
		once, cancel := context.WithCancel(ctx)
		cancel() // they compare once
		if err := p.witness.missing.Run(once); err != nil {
			return err
		}
		gpu, now := kernellog.GPU{Number: "0"}, time.Now()
		p.witness.ledger.Kernel(gpu, &kernellog.Event{Kind: kernellog.XID, Code: 79, Time: now})
		p.witness.ledger.Driver(gpu, 79, now)
		if err := p.health.Run(once); err != nil { // it judges once
			return err
		}
		p.addPages()
		if out := fromServer.Deliver(ctx, &lists.Offer{Content: []byte("# warpgauge: for=1h\n" + docsCounters)}); out.Err != nil { // so that it has an end
			return out.Err
		}
		a.newServer(cfg, nil, p, desk, zap.NewNop())
		all, err := p.registry.Gather()
		families = slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "warpgauge_") })
		return err
	})
	return families, err
}

// docsConfig has a source of owners that works without a kubelet.
func docsConfig(jobs string) *config.Config {
	cfg := config.Default()
	cfg.Remote.Mode, cfg.Remote.URL = config.RemoteApply, "opamp+http://fleet"
	cfg.HPCJobDir, cfg.AbsentFields, cfg.Health.ExpectedGPUs = jobs, true, 2
	cfg.Recorder.Directory = filepath.Join(jobs, "recordings")
	cfg.Web.ConfigFile = "web.yml" // it is not read, but there are metrics of logins then
	return cfg
}

func noEnvironment(string) (string, bool) { return "", false }

// metering makes a factory whose sources report what their library calls cost,
// as those of vendors' libraries do.
func metering(f collector.Factory) collector.Factory {
	return func() collector.Collector { return metered{f()} }
}

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
