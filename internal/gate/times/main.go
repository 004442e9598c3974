// Command times reads the output of go test -json, prints each package when it has
// ended, and at the end the slowest tests, to decide which ones make test leaves out.
//
//	go test -json ./... | go run ./internal/gate/times
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// event is a line of go test -json.
type event struct {
	Action, Package, Test string
	Elapsed               float64
}

const most = 40

func main() {
	var tests []event
	failed := false
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			say("%s\n", in.Text()) // of the compiler
			continue
		}
		ended := e.Action == "pass" || e.Action == "fail"
		failed = failed || e.Action == "fail"
		switch {
		case ended && e.Test == "":
			say("%7.1f s %s %s\n", e.Elapsed, e.Action, e.Package)
		case ended && !strings.Contains(e.Test, "/"):
			tests = append(tests, e)
		}
	}
	slices.SortFunc(tests, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	say("slowest tests (those that run side by side count twice):\n")
	for _, e := range tests[:min(most, len(tests))] {
		say("%7.1f s %s %s %s\n", e.Elapsed, e.Action, e.Package, e.Test)
	}
	if failed || in.Err() != nil {
		os.Exit(1)
	}
}

func say(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stdout, format, args...) // nothing can be done about an error
}
