package main_test

import (
	"context"
	"flag"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

var (
	measureViewers = flag.Bool("measure-viewers", false, "measure what viewers, history and recorder cost")
	measureTurns   = flag.Int("measure-turns", 5, "turns of each kind")
	measureTurn    = flag.Duration("measure-turn", 10*time.Second, "length of a turn")
)

// TestMeasureViewers prints what a scrape takes without viewers and while 20
// have a stream each at 10 Hz and the flight recorder writes, in turns of one run. It judges nothing.
func TestMeasureViewers(t *testing.T) {
	if !*measureViewers {
		t.Skip("measures only with -measure-viewers")
	}
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("no curl to view with: ", err)
	}
	exe := build(t)
	measureScrapes(t, exe, curl)
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
