package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// TestMain makes the directory of the binary that the end-to-end tests share.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "warpgauge-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Setenv("WARPGAUGE_TEST_DIR", dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo,gocritic // it is main now
	}
	waitsMoreThanItWorks()
	m.Run()
}

// waitsMoreThanItWorks lets more of the end-to-end tests run side by side than
// there are cores, unless -parallel says how many.
func waitsMoreThanItWorks() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))) // it is a number
	}
}
