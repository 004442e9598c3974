package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/encoding/protojson"

	"warpgauge/collectors/fake"
	"warpgauge/etc"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/supervisor"
	"warpgauge/pkg/view"
)

// goldenCounters is the default CSV plus one row of each missing kind.
const goldenCounters = `
DCGM_FI_DEV_NVLINK_BANDWIDTH_L0, counter, Throughput of a link.
DCGM_FI_PROF_SM_ACTIVE, histogram, Share of time that at least one warp was on an SM.
DCGM_FI_DEV_GPU_UTIL_RATIO, gauge, The same utilisation in the other dialect.
DCGM_EXP_XID_ERRORS_COUNT, gauge, XIDs within the window.
DCGM_EXP_CLOCK_EVENTS_TOTAL, counter, Clock events since start.
DCGM_EXP_GPU_HEALTH_STATUS, gauge, Health by watch.
DCGM_EXP_P2P_STATUS, gauge, Reachability of peers.
`

// TestGoldenPages runs each simulated node from reading to page in a synctest bubble. Its clock starts at a fixed time and
// moves only when all goroutines wait, so every byte of every format is known. Rewrite with -update.
func TestGoldenPages(t *testing.T) {
	list := countersList(t, string(etc.DefaultCounters()), goldenCounters)
	for _, profile := range fake.Profiles() {
		t.Run(profile, func(t *testing.T) {
			var text, open, proto []byte
			synctest.Test(t, func(t *testing.T) {
				factory := testkit.Get(fake.Factory(fake.Options{Profile: profile, Devices: 2}))(t)
				text, open, proto = simulate(t, factory, list, func(int) {})
			})
			checkGolden(t, profile+".prom", text)
			checkGolden(t, profile+".openmetrics", open)
			checkGolden(t, profile+".protobuf.json", readable(t, proto))
			lint(t, text)
		})
	}
}

// countersList merges lists into one without duplicate rows.
func countersList(t *testing.T, lists ...string) field.List {
	t.Helper()
	seen := map[string]bool{}
	var rows []string
	for line := range strings.Lines(strings.Join(lists, "\n")) {
		name, _, _ := strings.Cut(line, ",")
		if name = strings.TrimSpace(name); !seen[name] || name == "" {
			seen[name] = true
			rows = append(rows, line)
		}
	}
	list, problems, err := field.Parse(strings.NewReader(strings.Join(rows, "")), field.ParseOptions{File: "golden.csv", Strict: true})
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	return list
}

// shipped returns a built-in list.
func shipped(t *testing.T, name string) string {
	t.Helper()
	b := testkit.Get(etc.Files().ReadFile(name))(t)
	return string(b)
}

// simulate returns the pages of a node after 9.5 seconds. It calls each between two ticks, with the
// number of elapsed seconds.
func simulate(t *testing.T, factory collector.Factory, list field.List, each func(second int)) (text, open, proto []byte) {
	t.Helper()
	runNode(t, factory, list, func(r *exposition.Renderer) {
		for second := range 9 { // no source samples at these times
			time.Sleep(time.Second)
			each(second + 1)
		}
		time.Sleep(500 * time.Millisecond) // between two ticks of each source
		synctest.Wait()
		text, open, proto = r.Page(exposition.Text, false), r.Page(exposition.OpenMetrics, false), r.Page(exposition.Protobuf, false)
	})
	return text, open, proto
}

// runNode samples and renders until f returns.
func runNode(t *testing.T, factory collector.Factory, list field.List, f func(*exposition.Renderer)) {
	t.Helper()
	var page view.Merger
	s := supervisor.New(supervisor.Wanted{List: list}, supervisor.Options{Name: factory().Name(), Page: page.Part(), Open: factory})
	r := exposition.New(page.Board(), exposition.Options{Hostname: "node-1", Store: accumulate.New(accumulate.Options{Rows: rows.New(page.Board(), nil)})})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- s.Run(ctx) }()
	go func() { ended <- r.Run(ctx) }()
	f(r)
	cancel()
	for range 2 {
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// readable converts delimited messages to one JSON object per line.
func readable(t *testing.T, page []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	for r := bytes.NewReader(page); ; {
		var family dto.MetricFamily
		err := protodelim.UnmarshalFrom(r, &family)
		if errors.Is(err, io.EOF) {
			return out.Bytes()
		}
		must(t, err)
		for _, m := range family.GetMetric() {
			one := &dto.MetricFamily{Name: family.Name, Help: family.Help, Type: family.Type, Metric: []*dto.Metric{m}}
			raw := testkit.Get(protojson.Marshal(one))(t)
			must(t, json.Compact(&out, raw)) // protojson's blanks are random on purpose
			out.WriteByte('\n')
		}
	}
}

// checkGolden compares a page with the golden file.
func checkGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	golden.Check(t, filepath.Join("testdata", "golden", name), string(got))
}

// lint runs the checks of promtool check metrics, except those that DCGM's names violate: camelCase labels, which other
// device metrics also have; counters without _total; a metric called counter; names ending in _NS.
func lint(t *testing.T, page []byte) {
	t.Helper()
	problems := testkit.Get(promlint.New(bytes.NewReader(page)).Lint())(t)
	known := []string{`"_total" suffix`, "should not include type 'counter'", "abbreviated units"}
	for _, p := range problems {
		if strings.Contains(p.Text, "camelCase") || strings.HasPrefix(p.Metric, "DCGM_") && slices.ContainsFunc(known, func(text string) bool { return strings.Contains(p.Text, text) }) {
			continue
		}
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
