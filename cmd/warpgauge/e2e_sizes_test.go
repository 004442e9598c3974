package main_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"
)

// TestE2ESizes measures the resident memory of the binary, scraped once a second for WARPGAUGE_SIZE_MINUTES: as long as history
// grows. make sizes writes the table of benchmarks/README.md.
func TestE2ESizes(t *testing.T) {
	minutes, err := strconv.Atoi(os.Getenv("WARPGAUGE_SIZE_MINUTES"))
	if err != nil {
		t.Skip("make sizes measures")
	}
	nodes := []struct {
		what, list, isolation string
		gpus, first           int
		e                     *exporter
	}{
		{what: "8 GPUs, default list", list: "default", isolation: "none", gpus: 8},
		{what: "8 GPUs, recommended list", list: "recommended", isolation: "none", gpus: 8},
		{what: "8 GPUs, default list, isolated", list: "default", isolation: "process", gpus: 8},
		{what: "1,000 GPUs, default list", list: "default", isolation: "none", gpus: 1000},
	}
	for i := range nodes {
		n := &nodes[i]
		n.e = serve(t, build(t), "-f", "../../etc/"+n.list+"-counters.csv", "--isolation="+n.isolation, fmt.Sprintf("--fake-devices=%d", n.gpus))
		n.e.await(t, "every GPU", count(n.gpus, "DCGM_FI_DEV_GPU_TEMP"))
	}
	client, start, table := newClient(t), time.Now(), fmt.Sprintf("| | at first | after %d minutes | the child's then |\n|---|---|---|---|\n", minutes)
	for second := range 60 * minutes {
		time.Sleep(time.Until(start.Add(time.Duration(second) * time.Second)))
		for i := range nodes {
			if get(t, client, nodes[i].e.url+"/metrics"); second == 10 {
				nodes[i].first = mebibytes(t, nodes[i].e.PID(), "VmRSS")
			}
		}
	}
	for _, n := range nodes {
		child := "—"
		if n.isolation == "process" {
			bytes := testkit.Get(n.e.scrape(t, acceptText).one("warpgauge_collector_child_resident_bytes"))(t)
			child = fmt.Sprintf("%.0f MiB", bytes/(1<<20))
		}
		table += fmt.Sprintf("| %s | %d MiB | %d MiB | %s |\n", n.what, n.first, mebibytes(t, n.e.PID(), "VmRSS"), child)
	}
	golden.Fill(t, "../../benchmarks/README.md", map[string]string{"sizes": table})
}
