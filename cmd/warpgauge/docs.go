package main

//go:generate go run . docs --output ../../docs/metrics.md metrics
//go:generate go run . docs --output ../../docs/fields.md fields
//go:generate go run . docs --output ../../docs/nvml.md nvml
//go:generate go run . docs --output ../../docs/dcgm.md dcgm
//go:generate go run . docs --output ../../docs/migration-names.md migration-names

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/urfave/cli/v3"
	"go.uber.org/zap"

	"warpgauge/collectors/dcgm/dcgmdoc"
	"warpgauge/collectors/fake"
	"warpgauge/collectors/nvml"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/selfmetrics"
	"warpgauge/pkg/session"
	"warpgauge/pkg/supervisor"
	"warpgauge/pkg/view"
)

// docsCommand prints the generated pages of docs/. It is for go generate.
func (a *app) docsCommand() *cli.Command {
	return &cli.Command{
		Name:      "docs",
		Usage:     "Print a generated page of the documentation: flags, fields, metrics, nvml, dcgm or migration-names",
		ArgsUsage: "PAGE",
		Hidden:    true,
		Flags:     []cli.Flag{&cli.StringFlag{Name: "output", Usage: "File to write instead of standard output."}},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			return a.docs(ctx, cmd.Args().First(), cmd.String("output"))
		},
	}
}

func (a *app) docs(ctx context.Context, page, output string) error {
	var text bytes.Buffer
	var err error
	switch page {
	case "flags":
		text.WriteString(a.flags.Markdown())
	case "fields":
		err = field.WriteMarkdown(&text)
	case "metrics":
		err = writeMetrics(ctx, &text)
	case "nvml":
		err = nvml.WriteMarkdown(&text)
	case "dcgm":
		err = dcgmdoc.WriteMarkdown(&text)
	case "migration-names":
		err = writeMigration(&text, a.flags)
	default:
		err = fmt.Errorf("no page %q: write flags, fields, metrics, nvml, dcgm or migration-names", page)
	}
	if err != nil {
		return err
	}
	if output == "" {
		_, err = a.out.Write(text.Bytes())
		return err
	}
	return os.WriteFile(output, text.Bytes(), 0o644) //nolint:gosec // documentation is for everybody
}

const metricsHead = `# warpgauge's own metrics

This page is generated from an exporter with one simulated GPU by ` + "`go generate ./cmd/warpgauge`" + `; a test fails when it
is out of date. The metrics are on the same page as those of the GPUs, unless ` + "`--enable-exporter-metrics=false`" + `. Besides
these come client_golang's ` + "`go_*` and `process_*`" + `.

`

// writeMetrics lets an exporter of simulated GPUs sample and serve once, so that
// every metric has a series, and lists what is in its registry.
func writeMetrics(ctx context.Context, w io.Writer) error {
	families, err := sampleFamilies(ctx)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, metricsHead); err != nil {
		return err
	}
	return selfmetrics.WriteMarkdown(w, families)
}

// docsCounters asks for what is accumulated too: a histogram and a count.
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
	list, _, err := (&counters{cfg: cfg}).parse([]byte(docsCounters), "")
	if err != nil {
		return nil, err
	}
	node, err := fake.Factory(fake.Options{Devices: 2, Spec: &fake.Spec{
		Faults: []fake.Fault{{Kind: fake.Lost, GPUs: fake.One(1)}},
	}})
	if err != nil {
		return nil, err
	}
	node = metering(node)
	missing := func() collector.Collector {
		return nvml.New(nvml.Options{Root: "/nonexistent", Library: "/nonexistent"})
	}

	a := &app{streams: streams{out: io.Discard, err: io.Discard}, lookup: noEnvironment, build: build{}.orUnknown()}
	p, err := a.newPipeline(cfg, []vendor{{name: "fake", open: node}, {name: "nvml", open: missing}}, list, zap.NewNop())
	if err != nil {
		return nil, err
	}
	// Nothing is isolated here, and there is no failover.
	p.registry.MustRegister(supervisor.Examples("dcgm"))
	p.registry.MustRegister(supervisor.NewFailover(supervisor.FailoverOptions{Primary: "dcgm", Secondary: "nvml", Publish: func([]*view.Source) {}}))
	r := newReloader(nil, zap.NewNop(), time.Now())
	r.metrics.register(p.registry)
	prof := newProfiler(list, p.engine.Reload, 0, zap.NewNop())
	prof.register(p.registry)
	var families []*dto.MetricFamily
	err = sampleOnce(ctx, p.engine, p.owners, 10*time.Second, func(context.Context, []session.CollectorStatus) error {
		for _, h := range p.owners.health {
			h.Succeeded(0) // there is an age then
		}
		p.addPages()
		a.newServer(cfg, p, r, newReleaser(p.engine, 0, zap.NewNop()), prof, zap.NewNop())
		all, err := p.registry.Gather()
		families = slices.DeleteFunc(all, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), "warpgauge_") })
		return err
	})
	return families, err
}

// docsConfig asks the one who knows who uses a device that can be there: with a
// kubelet that never answers, owners are not counted.
func docsConfig(jobs string) *config.Config {
	cfg := config.Default()
	cfg.HPCJobDir = jobs
	return cfg
}

func noEnvironment(string) (string, bool) { return "", false }

// metering makes a factory whose sources tell what their library calls cost,
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

func (meteredSource) Calls() []collector.CallCost { return []collector.CallCost{{Call: "read"}} }
