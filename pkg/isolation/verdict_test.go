package isolation

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestVerdicts(t *testing.T) {
	f := func(e exit, stderr, reason, text string) {
		t.Helper()
		var w lastWords
		w.read(strings.NewReader(stderr), nil)
		got := judge(e, &w)
		if got.reason != reason || !strings.Contains(got.text, text) {
			t.Errorf("judge(%+v, %q) = %+v, want %s and %q", e, stderr, got, reason, text)
		}
	}
	trace := "\ngoroutine 1 [running]:\n" + strings.Repeat("main.f(...)\n\t/x.go:1 +0x1\n", 200)
	f(exit{code: 0}, "", ReasonExit, "exited with code 0")
	f(exit{code: 7}, "a\nno licence\n\n", ReasonExit, "code 7: no licence")
	f(exit{code: 2}, "SIGSEGV: segmentation violation\nPC=0x1 m=0"+trace, ReasonCrash, "SIGSEGV")
	f(exit{code: 2}, "panic: oh no\n"+trace, ReasonCrash, "panic: oh no")
	f(exit{code: 2}, "fatal error: out of memory\n"+trace, ReasonCrash, "out of memory")
	f(exit{code: 2}, "hello\nrocm.cc:3: int f(): Assertion `a' failed.\nSIGABRT: abort\nPC=0x1"+trace, ReasonAbort, "rocm.cc:3: int f(): Assertion `a' failed.")
	f(exit{code: 2}, "terminate called after throwing\n  what():  bad\nmore\nSIGABRT: abort\n"+trace, ReasonAbort, "what():  bad")
	f(exit{code: 2}, "something odd\nSIGABRT: abort\n"+trace, ReasonAbort, "something odd")
	f(exit{code: 2}, "SIGABRT: abort\n"+trace, ReasonAbort, "nothing was said")
	f(exit{code: -1, signal: syscall.SIGABRT}, "free(): invalid pointer\n", ReasonAbort, "free(): invalid pointer")
	f(exit{code: -1, signal: syscall.SIGSEGV}, "", ReasonCrash, "SIGSEGV (segmentation fault)")
	f(exit{code: -1, signal: syscall.SIGKILL}, "", ReasonSignal, "SIGKILL")
}

func TestLastWordsAreBounded(t *testing.T) {
	var w lastWords
	var b strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&b, "line %d %s\n", i, strings.Repeat("x", 3000))
	}
	b.WriteString("the last\xff one")
	w.read(strings.NewReader(b.String()), nil)
	if n := len(w.text()); n > stderrLines*(maxStderrLine+1) {
		t.Errorf("%d bytes kept", n)
	}
	if got := w.last(); got != "the last? one" {
		t.Errorf("the last line is %q", got)
	}
}

func TestPauses(t *testing.T) {
	p := pauses{longest: 3 * time.Second}
	f := func(served, want time.Duration) {
		t.Helper()
		if got := p.next(served); got != want {
			t.Errorf("pause %v after a child in service for %v, want %v", got, served, want)
		}
	}
	for _, millis := range []int{100, 200, 400, 800, 1600, 3000, 3000, 3000} {
		f(0, time.Duration(millis)*time.Millisecond)
	}
	f(time.Hour, 100*time.Millisecond)
	for _, millis := range []int{200, 400, 800, 1000, 1000} {
		f(time.Millisecond, time.Duration(millis)*time.Millisecond)
	}
	f(2*time.Second, 400*time.Millisecond)
	f(0, 800*time.Millisecond)
}

func TestParseStat(t *testing.T) {
	line := "12 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0 100 1000 25 18446744073709551615 1"
	u, err := parseStat([]byte(line), 4096)
	if err != nil || u.resident != 25*4096 || u.cpu != 2*time.Second {
		t.Errorf("parseStat = %+v, %v, want 25 pages and 2s", u, err)
	}
	for _, bad := range []string{"", "12 (a", "12 (a) S 1 2"} {
		if _, err := parseStat([]byte(bad), 4096); err == nil {
			t.Errorf("parseStat(%q) gives no error", bad)
		}
	}
}
