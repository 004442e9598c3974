package main

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// TestMain lets the test binary be the child that an exporter under test starts,
// and makes the directory of the binary that the end-to-end tests share.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		os.Exit(run(context.Background(), os.Args, streams{out: os.Stdout, err: os.Stderr}, os.LookupEnv)) //nolint:forbidigo // it is main now
	}
	const key = "WARPGAUGE_TEST_DIR"
	if os.Getenv(key) == "" { // else of a test that runs itself in another process
		dir, err := os.MkdirTemp("", "warpgauge-test-")
		if err == nil {
			defer os.RemoveAll(dir) //nolint:errcheck // nothing to be done about it
			err = os.Setenv(key, dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo,gocritic // it is main now
		}
	}
	m.Run()
}
