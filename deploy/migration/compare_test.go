// Package migration_test runs the script that compares two pages.
package migration_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/internal/testkit/programtest"
)

// old is what dcgm-exporter 4.8.2 prints, its labels in its order; new what an exporter
// does with other names of hosts, another order, other labels and shorter numbers.
const (
	old = `# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",pci_bus_id="00000000:3B:00.0",device="nvidia0",modelName="A, \"b\" {c}",Hostname="n1"} 41
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b",pci_bus_id="00000000:3C:00.0",device="nvidia1",modelName="A",Hostname="n1"} 50
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="1",UUID="GPU-b",GPU_I_ID="7",Hostname="n1",pod="p"} 0.250000
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",Hostname="n1"} 0
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a",Hostname="n1",err_code="0",err_msg="No Error"} 0
`
	same = `DCGM_FI_DEV_FB_USED{Hostname="n1",UUID="GPU-a",gpu="0"} 0
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",modelName="other",hostname="n2"} 42
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b",hostname="n2"} 50
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="1",UUID="GPU-b",GPU_I_ID="7",hostname="n2",pod="q"} 0.25
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a",err_code="0",err_msg="No Error"} 0
warpgauge_scrapes_total 1
`
)

func compare(t *testing.T, args ...string) (string, int) {
	t.Helper()
	out, err := exec.Command("./compare", args...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCompare(t *testing.T) {
	f := func(name, newPage, want string, code int, more ...string) {
		t.Helper()
		got, exit := compare(t, append([]string{file(t, old), file(t, newPage)}, more...)...)
		if d := cmp.Diff(want, got); d != "" || exit != code {
			t.Errorf("%s: exit code %d, want %d (-want +got):\n%s", name, exit, code, d)
		}
	}
	f("the same", same, "the same: 5 series of 5\n", 0)
	f("less is tolerated", same, "differs:  DCGM_FI_DEV_GPU_TEMP{UUID=\"GPU-a\"} 41 -> 42\nthe same: 4 series of 5\n", 1, "0.01")
	f("a family, an instance, a value", `DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 82
DCGM_FI_DEV_GPU_TEMP{UUID="GPU-b"} 50
DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-b",GPU_I_ID="8"} 0.25
DCGM_FI_DEV_FB_USED{UUID="GPU-a"} 0
DCGM_FI_DEV_FB_FREE{UUID="GPU-a"} 9
`, `differs:  DCGM_FI_DEV_GPU_TEMP{UUID="GPU-a"} 41 -> 82
only new: DCGM_FI_DEV_FB_FREE
only old: DCGM_FI_DEV_XID_ERRORS
only old: DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-b",GPU_I_ID="7"}
the same: 2 series of 5
`, 1)
}

// Pages come from URLs as well; one that does not come is not an empty one.
func TestCompareURLs(t *testing.T) {
	programtest.Find(t, "curl")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(same))
	}))
	defer server.Close()
	if got, code := compare(t, file(t, old), server.URL+"/metrics"); code != 0 || got != "the same: 5 series of 5\n" {
		t.Errorf("exit code %d:\n%s", code, got)
	}
	if got, code := compare(t, file(t, old), server.URL+"/elsewhere"); code == 0 || got != "" {
		t.Errorf("a page that is not there: exit code %d:\n%s", code, got)
	}
	if _, code := compare(t, "one"); code != 2 {
		t.Errorf("one argument: exit code %d", code)
	}
}
