package main

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"warpgauge/internal/testkit/eventually"
)

func TestReleaseOverHTTP(t *testing.T) {
	s := startServe(t, environment{}, "-c", "50", "--enable-release-endpoint")
	s.awaitOnPage("\nDCGM_FI_DEV_GPU_TEMP{gpu=\"7\"")
	if code, _, body := s.do(http.MethodPost, "/-/release?collector=nvml"); code != http.StatusNotFound || !strings.Contains(body, `"fake"`) {
		t.Errorf("release of a collector that is not enabled: %d %q", code, body)
	}
	if code, _, body := s.do(http.MethodPost, "/-/release?collector=fake&for=1h"); code != http.StatusOK {
		t.Fatalf("release: %d %q", code, body)
	}
	if page := s.page(); strings.Contains(page, "\nDCGM_FI_DEV_GPU_TEMP{") {
		t.Error("series of a released collector are on the page")
	}
	s.awaitOnPage("warpgauge_collector_problem{cause=\"released\",collector=\"fake\"} 1")
	s.awaitOnPage("warpgauge_devices{collector=\"fake\",state=\"released\"} ")
	if code, _, body := s.do(http.MethodGet, "/readyz"); code != http.StatusOK {
		t.Errorf("readyz while released: %d %q", code, body)
	}
	if code, _, body := s.do(http.MethodPost, "/-/resume"); code != http.StatusOK {
		t.Fatalf("resume: %d %q", code, body)
	}
	s.awaitOnPage("\nDCGM_FI_DEV_GPU_TEMP{gpu=\"7\"")
}

func TestReleaseBySignal(t *testing.T) {
	s := startServe(t, environment{}, "-c", "50")
	s.awaitOnPage("\nDCGM_FI_DEV_GPU_TEMP{gpu=\"7\"")
	if code, _, _ := s.do(http.MethodPost, "/-/release"); code != http.StatusForbidden {
		t.Errorf("release over HTTP without its flag: %d, want 403", code)
	}
	must(t, syscall.Kill(os.Getpid(), syscall.SIGUSR1))
	eventually.True(t, "the release", func() bool { return strings.Contains(s.log.String(), "released: nothing is held") })
	if page := s.page(); strings.Contains(page, "\nDCGM_FI_DEV_GPU_TEMP{") {
		t.Error("series of a released collector are on the page")
	}
	must(t, syscall.Kill(os.Getpid(), syscall.SIGUSR2))
	s.awaitOnPage("\nDCGM_FI_DEV_GPU_TEMP{gpu=\"7\"")
}

// TestStopWhileReleased: startServe checks the exit code and what is left.
func TestStopWhileReleased(t *testing.T) {
	s := startServe(t, environment{}, "-c", "50", "--enable-release-endpoint")
	s.awaitOnPage("\nDCGM_FI_DEV_GPU_TEMP{gpu=\"7\"")
	if code, _, body := s.do(http.MethodPost, "/-/release"); code != http.StatusOK {
		t.Fatalf("release: %d %q", code, body)
	}
}
