package report

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"
)

func TestTable(t *testing.T) {
	came := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	left, peak, size := came.Add(83*time.Minute), 71.0*(1<<30), 80.0*(1<<30)
	var busy Histogram
	busy.Add(0, 100)
	busy.Add(0.4, 900)
	use := Use{
		GPUSeconds: 4980, Energy: 2.1e6, IdleEnergy: 3e5, FromPower: 1e3, Methods: map[string]float64{"whole": 2e6, "equal": 1e5}, Busy: busy.Spread(), OFU: busy.Spread(),
		Spent: map[string]float64{Compute: 3980, Idle: 1000, Unknown: 1}, Throttled: map[string]float64{"sw_power_cap": 10, "hw_thermal": 300}, Memory: &peak, MemorySize: &size, XIDs: 1,
	}
	board := Board{Node: "node1", GPU: "3", Model: "NVIDIA H100", Came: came, Left: &left, Use: use}
	one := Report{Nodes: []string{"node1"}, Owner: Owner{Kind: KindJob, Job: "1234"}, Boards: []Board{board}}
	r := testkit.Get(Merge([]Report{one, one}))(t) // asked twice
	table := func() string {
		t.Helper()
		var b strings.Builder
		testkit.Must(t, r.WriteTable(&b))
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(line) - 1; n > maxWidth || strings.ContainsAny(line, "\x1b\t\u202e") {
				t.Errorf("a line of %d characters: %q", n, line)
			}
		}
		return b.String()
	}
	golden.Check(t, "testdata/job.txt", table())
	evil := strings.Repeat("\x1b[2J\n\tx\u202e", 99)
	board.Node, board.GPU, board.Model, board.Container, board.Left, board.Use.Energy = evil, evil, evil, evil, nil, 1e308
	board.Throttled, board.Verdicts = map[string]float64{evil: 1e308}, []Verdict{{Text: evil}}
	r = testkit.Get(Merge([]Report{{Nodes: []string{evil}, Owner: Owner{Kind: KindPod, Namespace: evil, Pod: evil}, Boards: []Board{board}}}))(t)
	testkit.Times(t, 22, table(), "\n")
}
