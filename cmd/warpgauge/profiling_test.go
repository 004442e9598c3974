package main

import (
	"net/http"
	"strings"
	"testing"
)

// TestPauseProfilingOverHTTP: profiling fields leave the page and nothing else
// does, a reload does not bring them back, and a resume does.
func TestPauseProfilingOverHTTP(t *testing.T) {
	const counters = "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_PROF_SM_ACTIVE, gauge, s\n"
	csv := tempFile(t, "counters.csv", counters)
	s := startServe(t, environment{}, "-c", "50", "-f", csv, "--enable-release-endpoint", "--enable-reload-endpoint")
	post := func(path string) {
		t.Helper()
		if code, _, body := s.do(http.MethodPost, path); code != http.StatusOK {
			t.Fatalf("%s: %d %q", path, code, body)
		}
	}
	s.awaitOnPage("\nDCGM_FI_PROF_SM_ACTIVE{gpu=\"7\"")
	s.awaitOnPage("\nwarpgauge_profiling_paused 0\n")
	post("/-/profiling/pause?for=1h")
	paused := func(when string) {
		t.Helper()
		page := s.page()
		if strings.Contains(page, "\nDCGM_FI_PROF_SM_ACTIVE{") || !strings.Contains(page, "\nDCGM_FI_DEV_GPU_TEMP{gpu=\"7\"") {
			t.Errorf("%s: the page must lack profiling fields and nothing else", when)
		}
	}
	paused("paused")
	s.awaitOnPage("\nwarpgauge_profiling_paused 1\n")
	writeFile(t, csv, counters+"DCGM_FI_DEV_POWER_USAGE, gauge, p\n")
	post("/-/reload")
	s.awaitOnPage("\nDCGM_FI_DEV_POWER_USAGE{gpu=\"7\"")
	paused("reloaded while paused")
	post("/-/profiling/resume")
	s.awaitOnPage("\nDCGM_FI_PROF_SM_ACTIVE{gpu=\"7\"")
	s.awaitOnPage("\nwarpgauge_profiling_paused 0\n")
	s.awaitOnPage("\nDCGM_FI_DEV_POWER_USAGE{gpu=\"7\"")
}
