package field

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

// TestDCGMNames compares dcgm.csv with go.mod's go-dcgm. Each of its names, current, legacy and of DCGM 1.x, must belong to
// its id, or to the reading that its id is a multiple of. There are no other ids below the base units of DCGM 4.7.
func TestDCGMNames(t *testing.T) {
	dir := testkit.Get(exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/NVIDIA/go-dcgm").Output())(t)
	entry := regexp.MustCompile(`(?m)^\s*"?(\w+)"?(?::\s*|,)(\d+),?$`) // in a map literal, or in a CSV
	names, ids := 0, map[ID]bool{}
	for _, file := range []string{"const_fields.go", "legacy_fields.csv"} {
		text := testkit.Get(os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "pkg", "dcgm", file)))(t)
		for _, m := range entry.FindAllStringSubmatch(string(text), -1) {
			id, _ := strconv.Atoi(m[2])
			names++
			ids[ID(id)] = true
			d, scale, ok := ByName(m[1])
			testkit.ErrorIf(t, !ok || int(d.ID) != id && scale == 1, "%q is %v, want %d", m[1], d, id)
			if _, ok := ByID(ID(id)); !ok {
				t.Errorf("id %d (%s) is not in the catalogue", id, m[1])
			}
		}
	}
	testkit.ErrorIf(t, names < 1000, "only %d names read", names)
	for _, d := range All() {
		testkit.ErrorIf(t, d.ID < FirstExporter && d.Of == 0 && !ids[d.ID], "go-dcgm does not know %s (%d)", d.Name, d.ID)
		testkit.ErrorIf(t, strings.HasPrefix(d.Name, "DCGM_FI_PROF_") != d.ID.Profiling(), "%s is a profiling field: %v", d.Name, d.ID.Profiling())
	}
}
