package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

// TestReport checks that a package is printed when it ends, failures with their output, and that each skip is reported.
func TestReport(t *testing.T) {
	const events = `
{"Action":"build-output","ImportPath":"p/broken","Output":"broken.go:1: no\n"}
{"Action":"start","Package":"p/a"}
{"Action":"output","Package":"p/a","Test":"TestGood","Output":"    good_test.go:3: noise\n"}
{"Action":"pass","Package":"p/a","Test":"TestGood","Elapsed":2}
{"Action":"output","Package":"p/a","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"p/a","Test":"TestBad/sub","Output":"    bad_test.go:3: wrong\n"}
{"Action":"fail","Package":"p/a","Test":"TestBad/sub","Elapsed":1}
{"Action":"fail","Package":"p/a","Test":"TestBad","Elapsed":1}
{"Action":"output","Package":"p/a","Test":"TestRoot","Output":"    root_test.go:9: needs root\n"}
{"Action":"output","Package":"p/a","Test":"TestRoot","Output":"--- SKIP: TestRoot (0.00s)\n"}
{"Action":"skip","Package":"p/a","Test":"TestRoot"}
{"Action":"output","Package":"p/a","Test":"TestSub/root","Output":"    root_test.go:9: needs root\n"}
{"Action":"skip","Package":"p/a","Test":"TestSub/root"}
{"Action":"pass","Package":"p/a","Test":"TestSub"}
{"Action":"output","Package":"p/a","Test":"TestPanic","Output":"panic: oh\n"}
{"Action":"output","Package":"p/a","Output":"FAIL\tp/a\t4.000s\n"}
{"Action":"fail","Package":"p/a","Elapsed":4}
{"Action":"output","Package":"p/b","Output":"ok  \tp/b\t(cached)\n"}
{"Action":"pass","Package":"p/b","Elapsed":0}
{"Action":"skip","Package":"p/none"}
`
	var out bytes.Buffer
	r := newReport(&out)
	err := r.read(strings.NewReader(strings.TrimSpace(events)))
	r.end(1)
	testkit.Equal(t, "error", "1 packages failed", fmt.Sprint(err))
	const want = `broken.go:1: no
=== RUN   TestBad
    bad_test.go:3: wrong
panic: oh
FAIL	p/a	4.000s
ok  	p/b	(cached)
skipped: p/a: needs root (TestRoot and 1 more)
slowest tests (including the time they waited for parallel tests):
    2.0 s pass p/a TestGood
failed: p/a TestBad
    bad_test.go:3: wrong
2 passed, 1 failed, 1 skipped
`
	testkit.Equal(t, "report", want, out.String())
}
