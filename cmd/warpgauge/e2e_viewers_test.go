package main_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
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

var (
	measureViewers = flag.Bool("measure-viewers", false, "measure what viewers, history and recorder cost")
	measureTurns   = flag.Int("measure-turns", 5, "turns of each kind")
	measureTurn    = flag.Duration("measure-turn", 10*time.Second, "length of a turn")
)

// TestMeasureViewers prints what a scrape takes without viewers and while 20
// have a stream each at 10 Hz and the flight recorder writes, in turns of one run, and what
// the exporter itself takes with and without history and page. It judges nothing.
func TestMeasureViewers(t *testing.T) {
	if !*measureViewers {
		t.Skip("measures only with -measure-viewers")
	}
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl to view with: ", err)
	}
	exe := build(t)
	t.Run("scrapes", func(t *testing.T) { measureScrapes(t, exe, curl) })
	t.Run("cost", func(t *testing.T) { measureCost(t, exe) })
	t.Run("memory", func(t *testing.T) { measureMemory(t, exe) })
}

func measureScrapes(t *testing.T, exe, curl string) {
	e := serve(t, exe, "--collect-interval=100", "--enable-record-endpoint", "--recorder-directory="+filepath.Join(t.TempDir(), "recordings"),
		"--recorder-after=1s")
	time.Sleep(*measureTurn)
	quiet, viewed := []time.Duration{}, []time.Duration{}
	for range *measureTurns {
		quiet = append(quiet, scrapeFor(t, e, *measureTurn, nil)...)
		ctx, stop := context.WithCancel(t.Context())
		var viewers []*exec.Cmd
		for range 20 {
			c := exec.CommandContext(ctx, curl, "-sN", "-o", "/dev/null", e.url+"/api/v1/stream?interval=0.1")
			must(t, c.Start())
			viewers = append(viewers, c)
		}
		viewed = append(viewed, scrapeFor(t, e, *measureTurn, func() { post(t, e.url+"/-/record") })...)
		stop()
		for _, c := range viewers {
			_ = c.Wait() // it was killed
		}
	}
	for _, p := range []float64{0.5, 0.99} {
		a, b := quantile(quiet, p), quantile(viewed, p)
		t.Logf("p%v of a scrape: %v quiet, %v with 20 viewers at 10 Hz and the recorder writing, ratio %.2f (%d and %d scrapes)",
			p*100, a, b, float64(b)/float64(a), len(quiet), len(viewed))
	}
}

// scrapeFor scrapes 50 times a second and calls each, if there is one, once a second.
func scrapeFor(t *testing.T, e *exporter, d time.Duration, each func()) (took []time.Duration) {
	t.Helper()
	client := &http.Client{}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n, end := 0, time.Now().Add(d); time.Now().Before(end); n++ {
		<-tick.C
		if each != nil && n%50 == 0 {
			each()
		}
		start := time.Now()
		resp, err := client.Get(e.url + "/metrics")
		must(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("scrape: %d, %v", resp.StatusCode, err)
		}
		took = append(took, time.Since(start))
	}
	return took
}

// post asks for a recording; that it is refused while one is being made does not matter.
func post(t *testing.T, url string) {
	t.Helper()
	resp, err := http.Post(url, "", nil)
	must(t, err)
	_ = resp.Body.Close()
}

func quantile(d []time.Duration, p float64) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[min(int(float64(len(d))*p), len(d)-1)].Round(time.Microsecond)
}

// measureCost compares exporters that run side by side, a scrape a second each.
func measureCost(t *testing.T, exe string) {
	for _, interval := range []string{"1000", "100", "10"} {
		kinds := [][]string{
			{"--web-page=off", "--history-age=0"},
			{"--web-page=full", "--history-age=0"},
			{"--web-page=full"},
		}
		var all []*exporter
		for _, args := range kinds {
			all = append(all, serve(t, exe, append(args, "--collect-interval="+interval)...))
		}
		time.Sleep(*measureTurn)
		before := make([]float64, len(all))
		for i, e := range all {
			before[i] = cpuOf(t, e)
		}
		for end := time.Now().Add(3 * *measureTurn); time.Now().Before(end); time.Sleep(time.Second) {
			for _, e := range all {
				e.scrape(t, acceptText)
			}
		}
		for i, e := range all {
			t.Logf("every %s ms, %v: %.2f %% of a core, %d MiB resident", interval, kinds[i], (cpuOf(t, e)-before[i])/(3*measureTurn.Seconds())*100, residentOf(t, e))
			e.Signal(t, os.Interrupt)
		}
	}
}

func measureMemory(t *testing.T, exe string) {
	for _, n := range []int{8, 16, 1000} {
		e := serve(t, exe, "--fake-devices="+strconv.Itoa(n))
		time.Sleep(2 * *measureTurn)
		e.scrape(t, acceptText)
		t.Logf("%d GPUs after %v: %d MiB resident; %s", n, 2**measureTurn, residentOf(t, e), historyOf(t, e))
		e.Signal(t, os.Interrupt)
	}
}

func historyOf(t *testing.T, e *exporter) (out string) {
	t.Helper()
	resp, err := http.Get(e.url + "/metrics")
	must(t, err)
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "warpgauge_history_") {
			out += lines.Text() + " "
		}
	}
	return out
}

// cpuOf is the processor time of a process in seconds, of which the kernel counts 100.
func cpuOf(t *testing.T, e *exporter) float64 {
	t.Helper()
	text := procFile(t, e, "stat")
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+2:])
	user, errU := strconv.ParseFloat(f[11], 64)
	system, errS := strconv.ParseFloat(f[12], 64)
	if errU != nil || errS != nil {
		t.Fatal(errU, errS)
	}
	return (user + system) / 100
}

func procFile(t *testing.T, e *exporter, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", e.PID(), name))
	must(t, err)
	return string(text)
}

func residentOf(t *testing.T, e *exporter) int {
	t.Helper()
	for line := range strings.Lines(procFile(t, e, "status")) {
		if kib, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(kib)[0])
			must(t, err)
			return n >> 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
