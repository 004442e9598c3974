//go:build linux && cgo

package main_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/internal/testkit/eventually"
)

// TestE2EDCGMPause: while profiling is paused the engine watches no profiling field
// for the exporter, whose child still reads the rest.
func TestE2EDCGMPause(t *testing.T) {
	t.Parallel()
	exe := build(t)
	e := dcgmtest.New(t, dcgmtest.Config{GPUs: 2})
	x := serve(t, exe, "--enable-only=dcgm", "--enable-dcgm=true", "--dcgm-library="+e.Library(), "-r", "localhost:5555",
		"--collect-interval=100", "--enable-release-endpoint",
		"-f", file(t, "counters.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_PROF_SM_ACTIVE, gauge, s\n"))
	client := newClient(t)
	defer client.CloseIdleConnections()
	await := func(what string, profiling bool, watches int) {
		t.Helper()
		eventually.OK(t, what, func() error {
			body := get(t, client, x.url+"/metrics").body
			switch n := e.Counts().Watches; {
			case bytes.Contains(body, []byte("\nDCGM_FI_PROF_SM_ACTIVE{")) != profiling:
				return fmt.Errorf("profiling on the page: %v", !profiling)
			case !bytes.Contains(body, []byte("\nDCGM_FI_DEV_GPU_TEMP{gpu=\"1\"")):
				return fmt.Errorf("no temperature")
			case n != watches:
				return fmt.Errorf("%d watches, want %d", n, watches)
			}
			return nil
		})
	}
	post := func(path, want string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, x.url+path, http.NoBody)
		must(t, err)
		a, err := client.Do(r)
		must(t, err)
		defer a.Body.Close()
		var text bytes.Buffer
		if _, err := text.ReadFrom(a.Body); err != nil || strings.TrimSpace(text.String()) != want {
			t.Errorf("%s: %d %q, %v", path, a.StatusCode, text.String(), err)
		}
	}
	await("both fields", true, 5) // each field, and what only health needs: slow readings, and XIDs twice
	post("/-/profiling/pause", "paused")
	await("a pause", false, 4)
	post("/-/profiling/resume", "resumed")
	await("both fields again", true, 5)
}
