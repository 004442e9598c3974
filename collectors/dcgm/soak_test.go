//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
)

// soakVariable is how long TestSoak runs, such as "10m". The default is a second.
const soakVariable = "WARPGAUGE_SOAK"

// TestSoak restarts the engine again and again while XIDs and links change and collectors follow one another as in reloads.
// Every source reports a lost connection. Open without an engine returns an error with the remedy, and works with the
// next engine. Memory, threads and descriptors do not grow.
func TestSoak(t *testing.T) {
	length := time.Second
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	for name, h := range map[string]hardware{"Unix socket": {gpus: 4}, "TCP": {gpus: 4, tcp: true}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, h, func(t *testing.T, m machine) {
				s := &soak{m: m, warm: 30, names: everyKind}
				if m.simulation() == nil {
					s.warm = 6 // a restart takes a second
					s.names = slices.DeleteFunc(slices.Clone(everyKind), func(n string) bool { return n == healthName })
				} else if h.tcp {
					t.Skip("the simulation has no transports")
				}
				s.run(t, length)
			})
		})
	}
}

// soak is one machine under test. With NVIDIA's engine it omits health: there each XID is a reason of health, and each new
// reason needs another Open.
type soak struct {
	m      machine
	names  []string
	warm   int // rounds until all one-time allocations are done
	rounds int
	c      *opened
}

func (s *soak) run(t *testing.T, length time.Duration) {
	t.Helper()
	s.c = s.open(t)
	for range s.warm {
		s.round(t)
	}
	before := measure(t)
	for end := time.Now().Add(length); time.Now().Before(end); {
		s.round(t)
	}
	eventually.OK(t, "threads, descriptors and goroutines as before", func() error { // the library closes sockets in its own time
		after := measure(t)
		if after.threads > before.threads+4 || after.descriptors > before.descriptors || after.goroutines > before.goroutines+2 {
			return fmt.Errorf("%+v before, %+v after %d rounds", before, after, s.rounds)
		}
		return nil
	})
	after := measure(t)
	t.Logf("%d rounds: %+v before, %+v after", s.rounds, before, after)
	// A connection takes some 2 MiB, so the leak of one shows.
	grown := after.resident - before.resident
	testkit.ErrorIf(t, grown > 32<<20, "memory grows by %d MiB in %d rounds", grown>>20, s.rounds)
	s.c.close(t)
	nothingLeft(t, s.m)
}

func (s *soak) open(t *testing.T) *opened {
	t.Helper()
	c := testkit.Get(openBriefly(t, s.m.options(), s.names...))(t)
	return c
}

// next opens the next collector after the one in service is closed.
func (s *soak) next(t *testing.T) {
	t.Helper()
	s.c.close(t)
	s.c = s.open(t)
	for i := range s.c.sources {
		s.c.until(t, i, "first values", func(err error) bool { return err == nil })
	}
	for range 5 {
		s.c.mustSample(t)
	}
}

func (s *soak) round(t *testing.T) {
	t.Helper()
	s.rounds++
	if s.rounds%3 != 0 { // a reload
		s.c.mustSample(t)
		s.next(t)
		return
	}
	s.m.stop()
	for i := range s.c.sources {
		s.c.until(t, i, "a lost connection", func(err error) bool {
			return errors.Is(err, collector.ErrColumnsChanged) && errors.Is(err, collector.ErrNotLoaded)
		})
	}
	if s.rounds%6 == 0 {
		o := s.m.options()
		o.ConnectTimeout = 100 * time.Millisecond
		_, err := openBriefly(t, o, s.names...)
		testkit.ErrorIf(t, !errors.Is(err, collector.ErrNotLoaded) || !strings.Contains(err.Error(), "start nv-hostengine"), "open without an engine: %v", err)
	}
	s.m.start()
	s.next(t)
	s.m.setLink(rand.IntN(4), rand.IntN(9), rand.IntN(2) == 0)
	if s.rounds%90 == 0 { // the script keeps every XID
		s.m.xid(rand.IntN(4), 13)
	}
}

// openBriefly opens a collector like open1, without a clean-up in the test.
func openBriefly(tb testing.TB, o Options, names ...string) (*opened, error) {
	tb.Helper()
	out := &opened{Collector: New(o)}
	sources, err := out.Open(tb.Context(), list(tb, names...))
	out.hold(sources)
	return out, err
}

func (c *opened) close(tb testing.TB) {
	tb.Helper()
	err := c.Close()
	testkit.ErrorIf(tb, err != nil, "close: %v", err)
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
	status, err1 := os.ReadFile("/proc/self/status")
	fds, err2 := os.ReadDir("/proc/self/fd")
	_, threads, _ := strings.Cut(string(status), "Threads:")
	_, resident, _ := strings.Cut(string(status), "VmRSS:")
	_, err3 := fmt.Sscan(threads, &out.threads)
	_, err4 := fmt.Sscan(resident, &out.resident)
	must(tb, errors.Join(err1, err2, err3, err4))
	out.resident <<= 10
	out.descriptors = len(fds)
	return out
}
