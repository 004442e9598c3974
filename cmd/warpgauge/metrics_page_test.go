package main

//go:generate go test -count=1 -run ^TestMetricsPage$ . -update

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/collectors/fake"
	"warpgauge/collectors/nvml"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
	"warpgauge/pkg/selfmetrics"
	"warpgauge/pkg/supervisor"
	"warpgauge/pkg/view"
)

// TestMetricsPage compares docs/metrics.md with the registry of an exporter of simulated GPUs: with its descriptions, and with
// the series after a sample. Rewrite with -update. It is a test and not part of internal/docgen, because only this package
// assembles an exporter.
func TestMetricsPage(t *testing.T) {
	golden.Check(t, "../../docs/metrics.md", metricsHead+metricsTable(sampleFamilies(t)))
}

const metricsHead = `# warpgauge's own metrics

This page is generated from an exporter with one simulated GPU by ` + "`go generate ./cmd/warpgauge`" + `; a test fails when it
is out of date. The metrics are on the same page as those of the GPUs. By default these are the set lean: what alerts
need, and ` + "`process_cpu_seconds_total` and `process_resident_memory_bytes`" + `. ` + "`--exporter-metrics=full`" + ` adds the
others, and client_golang's ` + "`go_*` and `process_*`; `--exporter-metrics=none`" + ` leaves all out.

`

// ownMetric is a metric of the exporter.
type ownMetric struct {
	kind, help string
	labels     []string
}

// metricsTable lists metrics by name with type, labels and help.
func metricsTable(metrics map[string]*ownMetric) string {
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	var b strings.Builder
	b.WriteString("| Metric | Type | Set | Labels | Meaning |\n|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		m, set := metrics[name], "full"
		if selfmetrics.IsLean(name) {
			set = "lean"
		}
		slices.Sort(m.labels)
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, m.kind, set, strings.Join(slices.Compact(m.labels), ", "), cell.Replace(m.help))
	}
	return b.String()
}

// description matches the text of a prometheus.Desc.
var description = regexp.MustCompile(`^Desc\{fqName: (".*?"), help: (".*"), unit: ".*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// metricsOf returns a registry's metrics. Those with a series have its type; without one, a name in _total is a counter's.
func metricsOf(t *testing.T, r *prometheus.Registry) map[string]*ownMetric {
	t.Helper()
	out := map[string]*ownMetric{}
	described := make(chan *prometheus.Desc, 1000)
	r.Describe(described)
	close(described)
	for d := range described {
		parts := description.FindStringSubmatch(d.String())
		name, err := strconv.Unquote(parts[1])
		must(t, err)
		m := &ownMetric{kind: "gauge"}
		m.help = testkit.Get(strconv.Unquote(parts[2]))(t)
		if strings.HasSuffix(name, "_total") {
			m.kind = "counter"
		}
		for _, l := range strings.FieldsFunc(parts[3]+","+parts[4], func(r rune) bool { return r == ',' }) {
			l, _, _ = strings.Cut(l, "=")
			m.labels = append(m.labels, "`"+l+"`")
		}
		out[name] = m
	}
	families := testkit.Get(r.Gather())(t)
	for _, f := range families {
		m := &ownMetric{strings.ToLower(f.GetType().String()), f.GetHelp(), nil}
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				m.labels = append(m.labels, "`"+l.GetName()+"`")
			}
		}
		out[f.GetName()] = m
	}
	maps.DeleteFunc(out, func(name string, _ *ownMetric) bool { return !strings.HasPrefix(name, "warpgauge_") })
	return out
}

// docsCounters includes accumulated fields: a histogram and a count.
const docsCounters = "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_POWER_USAGE, histogram, p\nDCGM_EXP_XID_ERRORS_COUNT, gauge, x\n"

// sampleFamilies gathers the metrics of an exporter with a collector that is up, a lost device, and
// a collector without its library, so that faults also have series.
func sampleFamilies(t *testing.T) (metrics map[string]*ownMetric) {
	dir := filepath.Dir(tempFile(t, "0", "1\n")) // a job, so that a device has an owner
	kmsg := tempFile(t, "kmsg", "")
	a, cfg := wanted(t, "--remote-config=apply", "--remote-url=opamp+http://fleet", "--hpc-job-mapping-dir="+dir, "--accounts", "--absent-fields",
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
	p := testkit.Get(a.NewPipeline(cfg, parsed.Fields, zap.NewNop()))(t)
	p.FindOwners()
	// Nothing is isolated here, and there is no failover.
	isolated := supervisor.New(supervisor.Wanted{}, supervisor.Options{Name: "dcgm", Page: new(view.Merger).Part(), Command: []string{"warpgauge", "child"}})
	failover := supervisor.NewFailover(supervisor.FailoverOptions{Primary: "dcgm", Secondary: "nvml", Logger: zap.NewNop()})
	p.Registry.MustRegister(append(failover.Metrics(), isolated)...)
	p.ServeLists(parsed, files)
	must(t, p.Extend())
	p.Registry.MustRegister(exporter.NewBacklog(io.Discard).Metric())
	must(t, p.Sample(t.Context(), 10*time.Second, func(context.Context) error {
		p.AddPages()
		p.NewServer()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stopped := make(chan error, 1)
		go func() { stopped <- isolated.Run(ctx) }()
		eventually.True(t, "metrics of a child", func() bool {
			metrics = metricsOf(t, p.Registry)
			return metrics["warpgauge_collector_child_resident_bytes"] != nil
		})
		cancel()
		return <-stopped
	}))
	return metrics
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
