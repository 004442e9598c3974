package report

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"warpgauge/internal/testkit"
)

func TestTable(t *testing.T) {
	came := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	left, peak, size := came.Add(83*time.Minute), 71.0*(1<<30), 80.0*(1<<30)
	var busy Histogram
	busy.Add(0, 100)
	busy.Add(0.4, 900)
	use := Use{
		GPUSeconds: 4980, Energy: 2.1e6, IdleEnergy: 3e5, FromPower: 1e3, Methods: map[string]float64{"whole": 2e6, "equal": 1e5}, Busy: busy.Spread(), OFU: busy.Spread(),
		Spent: map[string]float64{Compute: 3980, Idle: 1000}, Throttled: map[string]float64{"sw_power_cap": 10, "hw_thermal": 300}, Memory: &peak, MemorySize: &size, XIDs: 1,
	}
	board := Board{Node: "node1", GPU: "3", Model: "NVIDIA H100", Came: came, Left: &left, Use: use}
	r := testkit.Get(Merge([]Report{{Nodes: []string{"node1"}, Owner: Owner{Kind: KindJob, Job: "1234"}, Boards: []Board{board}}}))(t)
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
	testkit.Equal(t, "table", `job 1234 on node1: 1 GPU for 1 h 23 min
2026-11-30 10:00:00 to 2026-11-30 11:23:00 UTC

model      NVIDIA H100
energy     583 Wh, 83 Wh of it idle
estimated  1000 J from power, 28 Wh in equal parts
GPU time   1 h 23 min
spent on   compute 80 %, idle 20 %
throttled  hw_thermal 5 min 0 s, sw_power_cap 10 s
memory     71 GiB of 80 GiB at the peak
XIDs       1

             MEAN  P50   P95   MAX
utilization  36 %  40 %  40 %  40 %
OFU          36 %  40 %  40 %  40 %

NODE   GPU  CONTAINER  TIME        ENERGY  UTIL  TENSOR  OFU   MEMORY  XIDS
node1  3    -          1 h 23 min  583 Wh  36 %  -       36 %  71 GiB  1

The GPUs were used 36 % of the time.
`, table())
	evil := strings.Repeat("\x1b[2J\n\tx\u202e", 99)
	board.Node, board.GPU, board.Model, board.Container, board.Left, board.Use.Energy = evil, evil, evil, evil, nil, 1e308
	board.Throttled, board.Verdicts = map[string]float64{evil: 1e308}, []Verdict{{Text: evil}}
	r = testkit.Get(Merge([]Report{{Nodes: []string{evil}, Owner: Owner{Kind: KindPod, Namespace: evil, Pod: evil}, Boards: []Board{board}}}))(t)
	testkit.Times(t, 22, table(), "\n")
}
