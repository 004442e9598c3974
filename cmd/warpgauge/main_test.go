package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"testing"

	"warpgauge/pkg/supervisor"
)

// TestMain creates the directory for the binary that the end-to-end tests share.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "child" { // of a supervisor: it does nothing until it must stop
		_, _ = io.Copy(io.Discard, os.NewFile(supervisor.ControlFD, "control"))
		return
	}
	dir, err := os.MkdirTemp("", "warpgauge-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Setenv("WARPGAUGE_TEST_DIR", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo,gocritic // like main
	}
	waitsMoreThanItWorks()
	m.Run()
}

// waitsMoreThanItWorks runs more end-to-end tests in parallel than there are cores, unless
// -parallel is set.
func waitsMoreThanItWorks() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))) // a valid number
	}
}
