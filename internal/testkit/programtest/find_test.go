package programtest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// recorder is a test that ends without ending the one that runs it.
type recorder struct {
	testing.TB
	skipped, failed, log string
	cleanups             []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Skipf(format string, args ...any) {
	r.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// record runs f in a goroutine of its own, which Goexit ends.
func record(t *testing.T, f func(testing.TB)) *recorder {
	t.Helper()
	r, ended := &recorder{TB: t}, make(chan struct{})
	go func() {
		defer close(ended)
		f(r)
	}()
	<-ended
	return r
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	f := func(name, required, path, skipped, failed string) {
		t.Helper()
		t.Setenv("WARPGAUGE_REQUIRE", required)
		var got string
		r := record(t, func(tb testing.TB) { got = Find(tb, name) })
		if got != path || !begins(r.skipped, skipped) || !begins(r.failed, failed) {
			t.Errorf("%s, required %q: path %q, skipped %q, failed %q", name, required, got, r.skipped, r.failed)
		}
	}
	f("there", "", there, "", "")
	f("there", "there", there, "", "")
	f("nowhere", "", "", `needs nowhere: exec: "nowhere": `, "")
	f("nowhere", "nowhere-else,there", "", `needs nowhere: exec: "nowhere": `, "")
	f("nowhere", "there,nowhere", "", "", `nowhere is required by WARPGAUGE_REQUIRE but missing: exec: "nowhere": `)
}

// begins reports whether a text begins so, or whether there is none and shall be none.
func begins(text, prefix string) bool {
	return strings.HasPrefix(text, prefix) && (text == "") == (prefix == "")
}

// A skip is one line; a failure has all that was written.
func TestMissing(t *testing.T) {
	missing := func(tb testing.TB) {
		Missing(tb, "a cluster", "%v\n%s", fmt.Errorf("exit status %d", 1), "no right\r\nto mount\n")
	}
	t.Setenv("WARPGAUGE_REQUIRE", "")
	if r := record(t, missing); r.skipped != "needs a cluster: exit status 1; no right; to mount" || r.failed != "" {
		t.Errorf("skipped %q, failed %q", r.skipped, r.failed)
	}
	t.Setenv("WARPGAUGE_REQUIRE", "prometheus,a cluster")
	want := "a cluster is required by WARPGAUGE_REQUIRE but missing: exit status 1\nno right\r\nto mount\n"
	if r := record(t, missing); r.failed != want || r.skipped != "" {
		t.Errorf("skipped %q, failed %q, want %q", r.skipped, r.failed, want)
	}
}
