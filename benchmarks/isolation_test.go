package benchmarks

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// buildBinary compiles the command.
func buildBinary(b *testing.B) string {
	bin := filepath.Join(b.TempDir(), "warpgauge")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", bin, "warpgauge/cmd/warpgauge")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// exporter is a running binary that serves simulated GPUs.
type exporter struct {
	url string
	pid int
}

func startExporter(b *testing.B, bin string, gpus int, args ...string) *exporter {
	b.Helper()
	address := freeAddress(b)
	cmd := exec.CommandContext(b.Context(), bin, append([]string{
		"--enable-fake", "--fake-devices", strconv.Itoa(gpus), "--address", address,
		"--enable-nvml=false", "--enable-dcgm=false", "--enable-rocm=false", "--no-hostname",
	}, args...)...)
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	e := &exporter{url: "http://" + address + "/metrics", pid: cmd.Process.Pid}
	for end := time.Now().Add(time.Minute); gpusOn(e.url) != gpus; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("%q: no complete page within a minute", args)
		}
	}
	return e
}

// family returns the process and its children.
func (e *exporter) family(b *testing.B) []int {
	out := []int{e.pid}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", e.pid))
	if err != nil || len(tasks) == 0 {
		b.Skipf("no /proc to find children in: %v", err)
	}
	for _, path := range tasks {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, word := range strings.Fields(string(raw)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				b.Fatal(err)
			}
			out = append(out, pid)
		}
	}
	return out
}

// cpu is the user and system time of the whole family.
func (e *exporter) cpu(b *testing.B) (d time.Duration) {
	const tick = 10 * time.Millisecond // USER_HZ, the same on every Linux
	for _, pid := range e.family(b) {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			b.Fatal(err)
		}
		_, after, _ := strings.Cut(string(raw), ") ")
		f := strings.Fields(after)
		for _, word := range f[11:13] {
			n, err := strconv.Atoi(word)
			if err != nil {
				b.Fatal(err)
			}
			d += time.Duration(n) * tick
		}
	}
	return d
}

// sampled sums warpgauge_sample_duration_seconds_count and
// warpgauge_missed_ticks_total of the page.
func (e *exporter) sampled(b *testing.B) (samples, missed float64) {
	resp, err := http.Get(e.url)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, _, _ := strings.Cut(lines.Text(), "{")
		value := lines.Text()[strings.LastIndexByte(lines.Text(), ' ')+1:]
		v, err := strconv.ParseFloat(value, 64)
		switch {
		case name == "warpgauge_sample_duration_seconds_count" && err == nil:
			samples += v
		case name == "warpgauge_missed_ticks_total" && err == nil:
			missed += v
		}
	}
	return samples, missed
}

// walls are the exporters of a comparison: the same but for --isolation.
var walls = [...]string{"none", "process"}

// BenchmarkIsolationScrape sends scrapes to two exporters in turns, one with the
// sampling in its own process and one with it behind the wall, while both sample
// 8 GPUs each 100 ms, so that pages are rendered from rows all the time.
func BenchmarkIsolationScrape(b *testing.B) {
	bin := buildBinary(b)
	c := client(2)
	var took [len(walls)][]time.Duration
	var all [len(walls)]*exporter
	for i, wall := range walls {
		all[i] = startExporter(b, bin, 8, "--isolation="+wall, "--collect-interval=100")
	}
	for b.Loop() {
		for range 500 {
			for i, e := range all {
				took[i] = append(took[i], timed(b, func() error { _, err := get(c, e.url); return err }))
			}
			time.Sleep(time.Millisecond)
		}
	}
	for i, wall := range walls {
		slices.Sort(took[i])
		at := func(q float64) float64 { return float64(took[i][int(q*float64(len(took[i])-1))].Microseconds()) }
		b.ReportMetric(at(0.5), "µs-p50-"+wall)
		b.ReportMetric(at(0.99), "µs-p99-"+wall)
		b.ReportMetric(at(0.999), "µs-p99.9-"+wall)
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIsolationSampling runs the two side by side at the shortest tick for
// two seconds per iteration, without scrapes, and reports the processor time
// of a sample of one GPU (that of parent and child together) and how many ticks
// were missed.
func BenchmarkIsolationSampling(b *testing.B) {
	bin := buildBinary(b)
	var all [len(walls)]*exporter
	for i, wall := range walls {
		all[i] = startExporter(b, bin, 8, "--isolation="+wall, "--collect-interval=10")
	}
	time.Sleep(2 * time.Second) // the start is over, own metrics are on the page
	var cpu [len(walls)]time.Duration
	var samples, missed [len(walls)]float64
	for b.Loop() {
		var c [len(walls)]time.Duration
		var s, m [len(walls)]float64
		for i, e := range all {
			c[i] = e.cpu(b)
			s[i], m[i] = e.sampled(b)
		}
		time.Sleep(2 * time.Second)
		for i, e := range all {
			cpu[i] += e.cpu(b) - c[i]
			sNow, mNow := e.sampled(b)
			samples[i], missed[i] = samples[i]+sNow-s[i], missed[i]+mNow-m[i]
		}
	}
	for i, wall := range walls {
		if samples[i] == 0 {
			b.Fatalf("--isolation=%s took no samples", wall)
		}
		b.ReportMetric(float64(cpu[i].Microseconds())/samples[i], "cpu-µs/sample-"+wall)
		b.ReportMetric(100*missed[i]/samples[i], "%missed-"+wall)
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIsolationMemory reports resident memory of an exporter of 8 GPUs
// without and with the wall: of the parent, of the child, and what of the
// child's is its own (the text of the binary and the rings are shared).
func BenchmarkIsolationMemory(b *testing.B) {
	bin := buildBinary(b)
	const mib = 1 << 20
	var alone, parent, child, private float64
	one := startExporter(b, bin, 8, "--isolation=none")
	two := startExporter(b, bin, 8, "--isolation=process")
	for b.Loop() {
		for range 20 {
			gpusOn(one.url)
			gpusOn(two.url)
			time.Sleep(100 * time.Millisecond)
		}
		pids := two.family(b)
		if len(pids) != 2 {
			b.Fatalf("%d children, want 1", len(pids)-1)
		}
		alone, parent = max(alone, residentBytes(b, one.pid)), max(parent, residentBytes(b, two.pid))
		child, private = max(child, residentBytes(b, pids[1])), max(private, privateBytes(b, pids[1]))
	}
	b.ReportMetric(alone/mib, "MiB-none")
	b.ReportMetric(parent/mib, "MiB-parent")
	b.ReportMetric(child/mib, "MiB-child")
	b.ReportMetric(private/mib, "MiB-child-private")
	b.ReportMetric(0, "ns/op")
}

// privateBytes is the resident memory that no other process shares.
func privateBytes(b *testing.B, pid int) (bytes float64) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Skipf("no /proc to read private memory from: %v", err)
	}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) == 3 && strings.HasPrefix(f[0], "Private_") {
			kib, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			bytes += kib * 1024
		}
	}
	return bytes
}
