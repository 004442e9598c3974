// Package exportertest builds exporters for the tests of extensions.
package exportertest

import (
	"io"
	"testing"
	"time"

	"go.uber.org/zap"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/config"
	"warpgauge/pkg/config/configtest"
	"warpgauge/pkg/exporter"
)

// Node describes the exporter of a test.
type Node struct {
	Vendors    []exporter.Vendor
	Extensions []exporter.Extension
	CSV        string   // the field list
	Args       []string // flags
}

// Pipeline returns the node's pipeline. Its extensions are not started yet.
func (n *Node) Pipeline(t testing.TB) *exporter.Pipeline {
	t.Helper()
	var rows []configtest.Flags
	for _, e := range n.Extensions {
		rows = append(rows, e)
	}
	set, cfg, err := configtest.Parse(t, nil, rows, n.Args...)
	testkit.Must(t, err)
	log := zap.NewNop()
	a := &exporter.Program{
		Streams: exporter.Streams{Out: io.Discard, Err: io.Discard}, Flags: set, Extensions: n.Extensions,
		Vendors: func(*config.Config, time.Time, *zap.Logger) ([]exporter.Vendor, error) { return n.Vendors, nil },
	}
	files := a.NewFiles(cfg, "", nil)
	parsed := files.Parse(&config.Content{CSV: []byte(n.CSV), Name: "test.csv"})
	if parsed.Err != nil {
		t.Fatal(parsed.Err)
	}
	p, err := a.NewPipeline(cfg, parsed.Fields, log)
	testkit.Must(t, err)
	p.FindOwners()
	p.ServeLists(parsed, files)
	return p
}
