package supervisor

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
)

func newOutput(echo func(string)) (*output, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.DebugLevel)
	o := &output{log: zap.New(core), collector: "toy", echo: echo}
	o.pid.Store(7)
	return o, logs
}

func write(t *testing.T, o *output, text string) {
	t.Helper()
	n, err := o.Write([]byte(text))
	testkit.ErrorIf(t, n != len(text) || err != nil, "write of %d bytes: %d, %v", len(text), n, err)
}

// Entries of a child's logger arrive unchanged; all other output is a library's lines. Pieces of lines are joined.
func TestOutput(t *testing.T) {
	var printed []string
	o, logs := newOutput(func(line string) { printed = append(printed, line) })
	var b bytes.Buffer
	log := ChildLogger(&b, zapcore.DebugLevel).Named("nvml").With(zap.String("device", "GPU-1"))
	log.Warn("lost", zap.Int("calls", 1<<50), zap.Float64("share", 0.5), zap.Duration("after", time.Second), zap.String("collector", "other"))
	log.Debug("found")
	text := "first line\r\n" + b.String() + `{"level":"fatal","msg":"no end"}` + "\n" + `{"level":"x` + "\n" + `{"level":"odd","msg":"m"}` + "\n\xff\nlast"
	for _, part := range strings.SplitAfter(text, "e") {
		write(t, o, part)
	}
	o.flush()
	type entry struct {
		Level   zapcore.Level
		Logger  string
		Message string
		Fields  map[string]any
	}
	var got []entry
	for _, e := range logs.All() {
		got = append(got, entry{e.Level, e.LoggerName, e.Message, e.ContextMap()})
	}
	line := func(text string) entry {
		return entry{zapcore.DebugLevel, "", "output of a library", map[string]any{"collector": "toy", "pid": int64(7), "library_output": text}}
	}
	plain := map[string]any{"collector": "toy", "pid": int64(7)}
	want := []entry{
		line("first line"),
		{zapcore.WarnLevel, "nvml", "lost", map[string]any{
			"collector": "toy", "pid": int64(7), "device": "GPU-1", "calls": float64(1 << 50), "share": 0.5, "after": "1s",
		}},
		{zapcore.DebugLevel, "nvml", "found", map[string]any{"collector": "toy", "pid": int64(7), "device": "GPU-1"}},
		{zapcore.ErrorLevel, "", "no end", plain}, // no output of a child ends the parent
		line(`{"level":"x`),
		{zapcore.InfoLevel, "", "m", plain},
		line("?"),
		line("last"),
	}
	testkit.Equal(t, "log", want, got)
	testkit.Equal(t, "lines of the library", []string{"first line", `{"level":"x`, "?", "last"}, printed)
}

func TestOutputIsBounded(t *testing.T) {
	o, logs := newOutput(nil)
	write(t, o, strings.Repeat("x", 10*maxLine))
	testkit.Equal(t, "bytes that are kept of a line", maxLine, len(o.partial))
	for range 2 {
		before := logs.Len()
		for range 3 * linesPerTick {
			write(t, o, "line\n")
		}
		testkit.Equal(t, "entries between two ticks", linesPerTick, logs.Len()-before)
		o.tick()
		last := logs.All()[logs.Len()-1]
		if last.Message != "dropped log entries of a child" || last.ContextMap()["entries"].(int64) < linesPerTick {
			t.Errorf("the last entry is %v, want the number of those dropped", last)
		}
	}
}

// A library's first lines in a minute have level info, the others level debug, and their number is logged. The log line
// about a child's end has the Go runtime's crash output.
func TestLibraryOutputIsShown(t *testing.T) {
	o, logs := newOutput(nil)
	for range 2 {
		logs.TakeAll()
		write(t, o, strings.Repeat("line\n", shownLines+3))
		for range shownTicks {
			o.tick()
		}
		shown := logs.FilterLevelExact(zapcore.InfoLevel).All()
		testkit.FatalIf(t, len(shown) != shownLines+1 || logs.FilterLevelExact(zapcore.DebugLevel).Len() != 3, "%d entries at level info, %d in all", len(shown), logs.Len())
		testkit.Equal(t, "lines more that were written", any(int64(3)), shown[shownLines].ContextMap()["lines"])
	}
	logs.TakeAll()
	write(t, o, "before\npanic: boom\n\ngoroutine 1 [running]:\nmain.main()\n")
	shown := logs.FilterLevelExact(zapcore.InfoLevel).All()
	testkit.ErrorIf(t, len(shown) != 1 || shown[0].ContextMap()["library_output"] != "before", "at level info: %v, want the line before the crash", shown)
}

// A quiet start lowers only entries and lines of level info: a warning of the session that works at last is shown.
func TestQuietOutput(t *testing.T) {
	o, logs := newOutput(nil)
	o.setQuiet(true)
	write(t, o, `{"level":"info","msg":"a"}`+"\n"+`{"level":"warn","msg":"b"}`+"\nline\n")
	warned := logs.FilterLevelExact(zapcore.WarnLevel).Len()
	testkit.ErrorIf(t, warned != 1 || logs.FilterLevelExact(zapcore.DebugLevel).Len() != 2, "entries %v, want one at level warn and two at level debug", logs.All())
}

func FuzzOutput(f *testing.F) {
	f.Add([]byte(`{"level":"info","msg":"x","pid":1e999,"a":[{"b":null}]}` + "\n"))
	f.Add([]byte("SIGSEGV: x\r\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, logs := newOutput(nil)
		write(t, o, string(b))
		o.flush()
		for _, e := range logs.All() {
			testkit.ErrorIf(t, e.Level > zapcore.ErrorLevel || e.Level < zapcore.DebugLevel, "an entry of level %v", e.Level)
		}
		_ = o.tail.text()
	})
}

func TestLastWords(t *testing.T) {
	f := func(stderr, reason, text string) {
		t.Helper()
		var w stderrTail
		for line := range strings.SplitSeq(stderr, "\n") {
			w.appendLine(line)
		}
		r, got := w.explain()
		testkit.ErrorIf(t, r != reason || !strings.Contains(got, text), "%q is explained as %s %q, want %s and %q", stderr, r, got, reason, text)
	}
	trace := "\ngoroutine 1 [running]:\n" + strings.Repeat("main.f(...)\n\t/x.go:1 +0x1\n", 200)
	f("", "", "")
	f("a\nno licence\n\n", "", "")
	f("SIGSEGV: segmentation violation\nPC=0x1 m=0"+trace, ReasonCrash, "SIGSEGV")
	f("panic: oh no\n"+trace, ReasonCrash, "panic: oh no")
	f("fatal error: out of memory\n"+trace, ReasonCrash, "out of memory")
	f("hello\nrocm.cc:3: int f(): Assertion `a' failed.\nSIGABRT: abort\nPC=0x1"+trace, ReasonAbort, "rocm.cc:3: int f(): Assertion `a' failed.")
	f("terminate called after throwing\n  what():  bad\nmore\nSIGABRT: abort\n"+trace, ReasonAbort, "what():  bad")
	f("something odd\nSIGABRT: abort\n"+trace, ReasonAbort, "something odd")
	f("SIGABRT: abort\n"+trace, ReasonAbort, "nothing was said")

	var w stderrTail
	for i := range 5000 {
		w.appendLine(fmt.Sprint("line ", i))
	}
	w.appendLine("the last one")
	w.appendLine(" ")
	if n := strings.Count(w.text(), "\n"); n != wordsLines-1 || w.last(len(w.lines)) != "the last one" {
		t.Errorf("%d lines are kept, the last is %q", n+1, w.last(len(w.lines)))
	}
}
