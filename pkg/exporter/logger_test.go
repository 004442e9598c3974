package exporter

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/config"
)

// TestBacklogNeverWaits writes far more than fits, to a blocked reader. Then it checks the kept lines, the
// number of dropped lines, and later lines.
func TestBacklogNeverWaits(t *testing.T) {
	for _, format := range []string{config.LogText, config.LogJSON} {
		synctest.Test(t, func(t *testing.T) {
			r, w := io.Pipe()
			b := NewBacklog(w)
			cfg := config.Default()
			cfg.Log.Format = format
			log := NewLogger(cfg, b)
			log.Info("first")
			synctest.Wait() // it is being written, and the reader is blocked
			const each = 1000
			for i := range 2 * backlogBytes / each {
				fmt.Fprintf(b, "%0*d\n", each-1, i)
			}
			in := bufio.NewReader(r)
			line := func() string {
				text := testkit.Get(in.ReadString('\n'))(t)
				return strings.TrimSuffix(text, "\n")
			}
			got := line()
			testkit.ErrorIf(t, !strings.Contains(got, "first"), "read %q, want the first line", got)
			for i := range backlogBytes / each {
				got := line()
				testkit.FatalIf(t, got != fmt.Sprintf("%0*d", each-1, i), "read %q, want line %d: the oldest are kept", got, i)
			}
			dropped := 2*backlogBytes/each - backlogBytes/each
			says := fmt.Sprintf(`"lines": %d}`, dropped) // text
			if format == config.LogJSON {
				says = fmt.Sprintf(`"lines":%d}`, dropped)
			}
			got = line()
			testkit.ErrorIf(t, !strings.HasSuffix(got, says) || !strings.Contains(got, "dropped log lines"), "read %q, want that %d lines are dropped", got, dropped)
			testkit.Equal(t, "lines that are counted", dropped, int(testutil.ToFloat64(b.Metric())))
			log.Info("later")
			got = line()
			testkit.ErrorIf(t, !strings.Contains(got, "later") || strings.Contains(got, "dropped log lines"), "read %q, want the line that came later", got)
			b.Flush()
		})
	}
}

// TestLibraryLeavesRoom: a library's lines do not use up the room for our own.
func TestLibraryLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		b := NewBacklog(w)
		b.line("first")
		synctest.Wait()
		for b.dropped == 0 {
			b.line(strings.Repeat("x", 1000))
		}
		fmt.Fprint(b, "our own\n")
		testkit.Equal(t, "lines that are dropped, only the library's", uint64(1), b.dropped)
		must(t, r.Close())
		b.Flush()
	})
}

// TestFlush: the end waits for the writing, but only a moment for a blocked reader.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		b := NewBacklog(w)
		fmt.Fprint(b, "the reason\n")
		begin := time.Now()
		b.Flush()
		testkit.Equal(t, "duration of the end", flushWithin, time.Since(begin))
		must(t, r.Close())

		r, w = io.Pipe()
		b = NewBacklog(w)
		fmt.Fprint(b, "one\ntwo\n")
		read := make(chan string, 1)
		go func() {
			time.Sleep(flushWithin / 2)
			text := make([]byte, 100)
			n, _ := r.Read(text)
			read <- string(text[:n])
		}()
		b.Flush()
		testkit.Equal(t, "read", "one\ntwo\n", <-read)
		NewBacklog(w).Flush() // nothing was written: nothing to wait for
	})
}

// flaky fails until it is repaired.
type flaky struct {
	strings.Builder
	broken bool
}

func (f *flaky) Write(p []byte) (int, error) {
	if f.broken {
		return 0, errors.New("broken pipe")
	}
	return f.Builder.Write(p)
}

// TestClosedStandardError: lines that cannot be written are counted.
func TestClosedStandardError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &flaky{broken: true}
		b := NewBacklog(to)
		for range 3 {
			fmt.Fprint(b, "lost\n")
			synctest.Wait()
		}
		testkit.Equal(t, "lines that are counted", 3.0, testutil.ToFloat64(b.Metric()))
		to.broken = false
		fmt.Fprint(b, "seen\n")
		b.Flush()
		got := to.String()
		testkit.ErrorIf(t, !strings.HasPrefix(got, "seen\n") || !strings.Contains(got, `"lines": 3}`), "written %q, want the line and that 3 are missing", got)
	})
}

func TestLogger(t *testing.T) {
	for _, c := range []struct {
		log  config.Log
		want string // a pattern; empty: no line
	}{
		{config.Log{Format: config.LogText}, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d) INFO hello \{"logger": "sampler", "device": "GPU-1"\}\n$`},
		{config.Log{Format: config.LogJSON}, `^\{"level":"info","time":"[^"]+","logger":"sampler","msg":"hello","device":"GPU-1"\}\n$`},
		{config.Log{Format: config.LogText, Level: zap.WarnLevel}, `^$`},
		{config.Log{Format: config.LogText, Level: zap.WarnLevel, Debug: true}, `INFO hello`},
	} {
		var b bytes.Buffer
		to := NewBacklog(&b)
		NewLogger(&config.Config{Log: c.log}, to).Named("sampler").Info("hello", zap.String("device", "GPU-1"))
		to.Flush()
		testkit.ErrorIf(t, !regexp.MustCompile(c.want).MatchString(b.String()), "%+v logs %q, want %s", c.log, b.String(), c.want)
	}
}
