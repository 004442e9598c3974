//go:build linux && cgo

package dcgm

import (
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/pkg/collector"
)

// soakVariable is how long TestSoak runs: "10m". Without it a second.
const soakVariable = "WARPGAUGE_SOAK"

// TestSoak restarts the engine again and again, while XIDs, MIG and links change
// and collectors take over from each other as at a reload. Memory, threads and
// descriptors end where they were.
func TestSoak(t *testing.T) {
	length := time.Second
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	e := simulate(t, dcgmtest.Config{GPUs: 4})
	start := func() *opened {
		c, err := openBriefly(t, remote(e), everyKind...)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := start()
	rounds := 0
	round := func() {
		rounds++
		if rounds%3 != 0 { // a reload
			next := start()
			for range 5 {
				c.mustSample(t)
				next.mustSample(t)
			}
			c.close(t)
			c = next
			return
		}
		if rounds%6 == 0 {
			e.Stop(-21)
			if _, err := openBriefly(t, remote(e), everyKind...); err == nil {
				t.Error("an engine that is stopped was opened")
			}
			e.Start()
		} else {
			e.Restart()
		}
		for i := range c.sources {
			if err := c.sample(i); !errors.Is(err, collector.ErrColumnsChanged) {
				t.Errorf("source %d of an engine that restarted: %v", i, err)
			}
		}
		next := start()
		c.close(t)
		c = next
		e.SetLink(dcgmtest.GPU(rand.IntN(4)), rand.IntN(18), dcgmtest.LinkState(2+rand.IntN(2)))
		if rounds%90 == 0 { // the script remembers all
			e.XID(rand.IntN(4), 13)
		}
		for range 5 {
			c.mustSample(t)
		}
	}
	for range 30 { // what is made once
		round()
	}
	before := measure(t)
	for end := time.Now().Add(length); time.Now().Before(end); {
		round()
	}
	after := measure(t)
	t.Logf("%d rounds: %+v before, %+v after", rounds, before, after)
	if after.threads > before.threads+4 || after.descriptors > before.descriptors || after.goroutines > before.goroutines+2 {
		t.Errorf("threads, descriptors or goroutines grow: %+v before, %+v after %d rounds", before, after, rounds)
	}
	// A connection's own memory is some 2 MiB, so that a leak of one shows.
	if grown := after.resident - before.resident; grown > 32<<20 {
		t.Errorf("memory grows by %d MiB in %d rounds", grown>>20, rounds)
	}
	c.close(t)
	if diff := cmp.Diff(dcgmtest.Counts{Inits: 1}, e.Counts()); diff != "" {
		t.Errorf("left over (-want +got):\n%s", diff)
	}
}

// openBriefly is open1 without a trace in the test.
func openBriefly(tb testing.TB, o Options, names ...string) (*opened, error) {
	tb.Helper()
	out := &opened{Collector: New(o)}
	sources, err := out.Open(tb.Context(), list(tb, names...))
	out.hold(sources)
	return out, err
}

func (c *opened) close(tb testing.TB) {
	tb.Helper()
	if err := c.Close(); err != nil {
		tb.Errorf("close: %v", err)
	}
}

type footprint struct {
	goroutines, threads, descriptors int
	resident                         int64 // bytes
}

func measure(tb testing.TB) footprint {
	tb.Helper()
	for range 3 {
		runtime.GC()
	}
	out := footprint{goroutines: runtime.NumGoroutine()}
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch words[0] {
		case "Threads:":
			out.threads, err = strconv.Atoi(words[1])
		case "VmRSS:":
			out.resident, err = strconv.ParseInt(words[1], 10, 64)
			out.resident <<= 10
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Fatal(err)
	}
	out.descriptors = len(fds)
	return out
}
