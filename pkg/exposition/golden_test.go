package exposition

import (
	"path/filepath"
	"testing"

	"warpgauge/internal/testkit/golden"
)

func TestGolden(t *testing.T) {
	r := newNode(t)
	golden.Check(t, filepath.Join("testdata", "node.prom"), pageOf(t, r, Text))
	golden.Check(t, filepath.Join("testdata", "node.openmetrics"), pageOf(t, r, OpenMetrics))
	golden.Check(t, filepath.Join("testdata", "node.protobuf.txt"), golden.Protobuf(t, pageOf(t, r, Protobuf)))

	old := newNode(t, func(o *Options) {
		o.OldNamespace, o.ReplaceBlanksInModel, o.HostnameLabel = true, true, "Hostname"
	})
	golden.Check(t, filepath.Join("testdata", "old-namespace.prom"), pageOf(t, old, Text))
	golden.Check(t, filepath.Join("testdata", "no-hostname.prom"), pageOf(t, newNode(t, func(o *Options) { o.Hostname = "" }), Text))
}
