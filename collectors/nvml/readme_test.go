//go:build linux && cgo

package nvml

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// TestReadme wants every rule of the health watches in README.md, and none that
// is not there.
func TestReadme(t *testing.T) {
	raw, err := os.ReadFile("README.md")
	must(t, err)
	text := string(raw)
	var rules []string
	for _, r := range healthRules(nvml.DEVICE_ARCH_VOLTA) {
		rules = append(rules, fmt.Sprintf("| `%s` | `%s` |", r.watch, r.code))
	}
	for _, r := range xidRules(nvml.DEVICE_ARCH_VOLTA) {
		row := fmt.Sprintf("| `%s` | `%s` |", r.watch, r.code)
		rules = append(rules, row)
		if !strings.Contains(tableRow(text, row), strconv.FormatUint(r.xid, 10)) {
			t.Errorf("README.md does not name XID %d in %q", r.xid, tableRow(text, row))
		}
	}
	for _, row := range rules {
		if tableRow(text, row) == "" {
			t.Errorf("README.md has no row %q", row)
		}
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "`DCGM_FR_") && !slices.ContainsFunc(rules, func(r string) bool { return strings.HasPrefix(line, r) }) {
			t.Errorf("README.md has a row that is no rule: %q", line)
		}
	}
}

func tableRow(text, start string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, start) {
			return line
		}
	}
	return ""
}
