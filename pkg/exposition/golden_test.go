package exposition

import (
	"path/filepath"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"

	"warpgauge/internal/testkit/golden"
)

func TestGolden(t *testing.T) {
	r := newNode(t)
	golden.Check(t, filepath.Join("testdata", "node.prom"), pageOf(t, r, Text))
	golden.Check(t, filepath.Join("testdata", "node.openmetrics"), pageOf(t, r, OpenMetrics))
	golden.Check(t, filepath.Join("testdata", "node.protobuf.txt"), describe(t, pageOf(t, r, Protobuf)))

	old := newNode(t, func(o *Options) {
		o.OldNamespace, o.ReplaceBlanksInModel, o.HostnameLabel = true, true, "Hostname"
	})
	golden.Check(t, filepath.Join("testdata", "old-namespace.prom"), pageOf(t, old, Text))
	golden.Check(t, filepath.Join("testdata", "no-hostname.prom"), pageOf(t, newNode(t, func(o *Options) { o.Hostname = "" }), Text))
}

// describe prints a protobuf page, one metric per line, in a form that does not depend on the library's
// version.
func describe(t *testing.T, page string) string {
	t.Helper()
	var b strings.Builder
	for in := strings.NewReader(page); in.Len() > 0; {
		var f dto.MetricFamily
		must(t, protodelim.UnmarshalFrom(in, &f))
		metrics := f.Metric
		f.Metric = nil
		b.WriteString(oneLine(&f))
		for _, m := range metrics {
			b.WriteString("  " + oneLine(m))
		}
	}
	return b.String()
}

func oneLine(m interface{ String() string }) string {
	return strings.Join(strings.Fields(m.String()), " ") + "\n"
}
