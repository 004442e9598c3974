package main

import (
	"context"
	"os"
	"testing"
)

// TestMain lets the test binary be the child that an exporter under test starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		os.Exit(run(context.Background(), os.Args, streams{out: os.Stdout, err: os.Stderr}, os.LookupEnv)) //nolint:forbidigo // it is main now
	}
	m.Run()
}
