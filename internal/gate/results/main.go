// Command results reads the output of go test -json and prints go test's closing line of each package when
// it has ended, the output of failed tests, and at the end each skipped test with its reason. With
// -slowest it also prints the slowest tests, to decide which ones make test leaves out.
//
//	go test -json ./... | go run ./internal/gate/results
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	slowest := flag.Int("slowest", 0, "print that many of the slowest tests")
	flag.Parse()
	r := newReport(os.Stdout)
	err := r.read(os.Stdin)
	r.end(*slowest)
	if err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // for a build, replaces Package
	Elapsed                       float64
}

// report collects the data that end prints.
type report struct {
	w       io.Writer
	output  map[string][]string // of running tests, by package and test
	tests   []event
	skipped map[string][]string // tests by package and reason
	failed  []string            // the first ten lines of each failed test, printed last so that the output of programs does not hide them
}

func newReport(w io.Writer) *report {
	return &report{w: w, output: map[string][]string{}, skipped: map[string][]string{}}
}

// key returns the name under which output is kept. A subtest shares the key of its test.
func (e *event) key() string {
	test, _, _ := strings.Cut(e.Test, "/")
	return e.Package + " " + test
}

// read prints packages and failures as they end, and returns an error if one failed.
func (r *report) read(from io.Reader) error {
	in := bufio.NewScanner(from)
	in.Buffer(nil, 64<<20)
	failed := 0
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			r.say("%s\n", in.Text()) // printed by go itself
			continue
		}
		switch {
		case e.Action == "build-output":
			r.say("%s", e.Output)
		case e.Action == "output":
			r.output[e.key()] = append(r.output[e.key()], e.Output)
		case e.Action == "skip" && e.Test != "":
			why := e.Package + ": " + reason(r.output[e.key()])
			r.skipped[why] = append(r.skipped[why], e.Test)
		}
		switch ended := e.Action == "pass" || e.Action == "fail" || e.Action == "skip"; {
		case !ended || strings.Contains(e.Test, "/"):
		case e.Test == "":
			if e.Action == "fail" {
				failed++
			}
			r.endPackage(&e)
		default:
			r.endTest(&e)
		}
	}
	if failed > 0 {
		return errors.Join(fmt.Errorf("%d packages failed", failed), in.Err())
	}
	return in.Err()
}

func (r *report) endTest(e *event) {
	r.tests = append(r.tests, *e)
	if e.Action == "fail" {
		lines := r.output[e.key()]
		r.say("%s", strings.Join(lines, ""))
		lines = lines[max(0, slices.IndexFunc(lines, position.MatchString)):]
		r.failed = append(r.failed, "failed: "+e.Package+" "+e.Test+"\n"+strings.Join(lines[:min(10, len(lines))], ""))
	}
	delete(r.output, e.key())
}

// endPackage also prints the output of tests that have not ended, because it contains a panic.
func (r *report) endPackage(e *event) {
	keys := slices.Sorted(maps.Keys(r.output))
	for _, key := range slices.Backward(keys) { // the package's own output comes last
		lines := r.output[key]
		if name, _, _ := strings.Cut(key, " "); name != e.Package {
			continue
		}
		for _, line := range lines {
			if e.Action == "fail" || strings.HasPrefix(line, "ok ") { // go test's own closing line
				r.say("%s", line)
			}
		}
		delete(r.output, key)
	}
}

// end prints the skipped tests, the slowest tests, and the number of tests.
func (r *report) end(slowest int) {
	for _, why := range slices.Sorted(maps.Keys(r.skipped)) {
		tests := r.skipped[why]
		more := ""
		if len(tests) > 1 {
			more = fmt.Sprintf(" and %d more", len(tests)-1)
		}
		r.say("skipped: %s (%s%s)\n", why, tests[0], more)
	}
	if slowest > 0 {
		slices.SortFunc(r.tests, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
		r.say("slowest tests (including the time they waited for parallel tests):\n")
		for _, e := range r.tests[:min(slowest, len(r.tests))] {
			r.say("%7.1f s %s %s %s\n", e.Elapsed, e.Action, e.Package, e.Test)
		}
	}
	r.say("%s", strings.Join(r.failed, ""))
	count := map[string]int{}
	for i := range r.tests {
		count[r.tests[i].Action]++
	}
	r.say("%d passed, %d failed, %d skipped\n", count["pass"], count["fail"], count["skip"])
}

// position matches the start of a line that a test has logged.
var position = regexp.MustCompile(`^\s+\w+\.go:\d+: `)

// reason returns the text that a test passed to Skip: its last logged line.
func reason(lines []string) string {
	for _, l := range slices.Backward(lines) {
		if at := position.FindString(l); at != "" {
			return strings.TrimSpace(l[len(at):])
		}
	}
	return "no reason given"
}

func (r *report) say(format string, args ...any) {
	_, _ = fmt.Fprintf(r.w, format, args...) // no remedy for an error
}
