//go:build linux && cgo

package main_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/internal/testkit/eventually"
)

// TestE2EDCGMXIDs: of XIDs with a reload after each, some of which begin before the
// one before has ended, each is counted once, by children and without, and nothing says
// that one may be missing. The engine lives on.
func TestE2EDCGMXIDs(t *testing.T) {
	t.Parallel()
	exe := build(t)
	for _, isolation := range []string{"process", "none"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			const xids = 16
			e := dcgmtest.New(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
			list := func(n int) string {
				return fmt.Sprintf("DCGM_FI_DEV_GPU_TEMP, gauge, list %d\nDCGM_EXP_XID_ERRORS_TOTAL, counter, x\n", n)
			}
			path := file(t, "counters.csv", list(0))
			x := serve(t, exe, "--enable-only=dcgm", "--enable-dcgm=true", "--dcgm-library="+e.Library(), "-r", "localhost:5555",
				"--isolation="+isolation, "-f", path)
			client := newClient(t)
			defer client.CloseIdleConnections()
			shows := func(what string, texts ...string) {
				t.Helper()
				eventually.OK(t, what, func() error {
					body := get(t, client, x.url+"/metrics").body
					for _, text := range texts {
						if !bytes.Contains(body, []byte(text)) {
							return fmt.Errorf("no %q", text)
						}
					}
					return nil
				})
			}
			shows("the first list", "list 0\n", `nvidia0`, `xid="48"} 0`)
			for n := range xids {
				e.XID(0, 48)
				write(t, path, list(n+1))
				x.Signal(t, syscall.SIGHUP)
				if n%4 != 0 {
					shows("the next list", fmt.Sprintf("list %d\n", n+1), `nvidia0`)
				}
			}
			shows("each XID, and the last list", fmt.Sprintf(`xid="48"} %d`, xids), fmt.Sprintf("list %d\n", xids), `warpgauge_event_gaps_total{collector="dcgm"} 0`)
			if a := get(t, client, x.url+"/metrics"); a.code != http.StatusOK || strings.Contains(string(a.body), fmt.Sprintf(`xid="48"} %d`, xids+1)) {
				t.Errorf("an XID was counted twice, or status %d", a.code)
			}
		})
	}
}
