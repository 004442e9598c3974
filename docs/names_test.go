package docs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/pages"
	"warpgauge/pkg/field"
)

// read returns a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	text := testkit.Get(os.ReadFile(filepath.Join("..", path)))(t)
	return string(text)
}

// scan calls wrong with each match of a pattern in each page, and reports its complaints. Fewer matches than least
// show that the pattern finds nothing.
func scan(t *testing.T, pattern *regexp.Regexp, least int, wrong func(path, text string, m []int) string) {
	t.Helper()
	found := 0
	for path, text := range every(t) {
		for _, m := range pattern.FindAllStringSubmatchIndex(text, -1) {
			found++
			testkit.Equal(t, path, "", wrong(path, text, m))
		}
	}
	if found < least {
		t.Errorf("found %d of %v only", found, pattern)
	}
}

var makeTarget = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)

// TestMakeTargets checks that each `make TARGET` in a page is in the Makefile.
func TestMakeTargets(t *testing.T) {
	known := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		known[m[1]] = true
	}
	scan(t, regexp.MustCompile("(?m)(?:^ *|`)make ([a-z][a-z0-9-]*)"), 10, func(_, text string, m []int) string {
		if name := text[m[2]:m[3]]; !known[name] {
			return "there is no `make " + name + "`"
		}
		return ""
	})
}

// repositoryPath matches a file or folder of the repository as commands name it: relative to the root.
var repositoryPath = regexp.MustCompile(`(?:^|[\s"'=/(` + "`" + `])((?:deploy|etc|dashboards|docs|collectors|cmd|extensions|internal|pkg|test)/[A-Za-z0-9][\w./-]*[\w/])`)

// TestPaths checks that files in commands and texts exist. A name after / has another root: a system file or a URL.
func TestPaths(t *testing.T) {
	scan(t, repositoryPath, 50, func(path, text string, m []int) string {
		name, before := text[m[2]:m[3]], text[:m[2]]
		if strings.HasSuffix(before, "/") && !strings.HasSuffix(before, "$PWD/") && !strings.HasSuffix(before, " ./") || strings.Contains(name, "NAME") {
			return "" // NAME is a placeholder
		}
		_, err := os.Stat(filepath.Join("..", name))
		_, near := os.Stat(filepath.Join("..", filepath.Dir(path), name))
		if errors.Is(err, fs.ErrNotExist) && errors.Is(near, fs.ErrNotExist) {
			return name + " is not there"
		}
		return ""
	})
}

var variable = regexp.MustCompile(`\b(?:WARPGAUGE|DCGM_EXPORTER)_[A-Z0-9_]*[A-Z0-9]\b`)

// TestVariables checks that each environment variable of the exporter in a page is in the flag table.
func TestVariables(t *testing.T) {
	known := map[string]bool{}
	for _, name := range variable.FindAllString(read(t, "docs/flags.md"), -1) {
		known[name] = true
	}
	scan(t, variable, 50, func(_, text string, m []int) string {
		if name := text[m[0]:m[1]]; !known[name] && !othersVariables[name] {
			return "$" + name + " is not in the flag table"
		}
		return ""
	})
}

// othersVariables lists variables of scripts, units and tests.
var othersVariables = map[string]bool{
	"WARPGAUGE_FLAGS":            true, // the systemd unit
	"WARPGAUGE_JOB_ID":           true, // deploy/slurm/warpgauge-jobs
	"WARPGAUGE_REPORT_DIR":       true,
	"WARPGAUGE_ADMIN_COMMENT":    true,
	"WARPGAUGE_REQUIRE":          true, // tests
	"WARPGAUGE_CHART_KUBECONFIG": true,
	"WARPGAUGE_FAKE_DCGM":        true,
	"WARPGAUGE_FAKE_NVML":        true,
	"WARPGAUGE_SOAK":             true,
	"WARPGAUGE_TORN_KILLS":       true,
}

var fieldWord = regexp.MustCompile(`\b(?:DCGM_(?:FI|EXP)|amd_gpu|nvidia_gpu)_[A-Za-z0-9_]*[A-Za-z0-9]`)

// TestFields checks that each field in a page is in the catalogue, is the histogram of one, or, with … or *, begins a
// field's name.
func TestFields(t *testing.T) {
	scan(t, fieldWord, 500, func(path, text string, m []int) string {
		name, after := text[m[0]:m[1]], text[m[1]:]
		switch {
		case name == "nvidia_gpu_exporter": // another program
		case strings.HasPrefix(name, "nvidia_gpu_") && path == "docs/accounts.md": // names of jobstats
		case strings.HasPrefix(after, "_…") || strings.HasPrefix(after, "_*"):
			if !slices.ContainsFunc(field.All(), func(d *field.Descriptor) bool { return strings.HasPrefix(d.Name, name+"_") }) {
				return "no field begins with " + name + "_"
			}
		case !pages.IsField(name):
			return name + " is not in the catalogue"
		}
		return ""
	})
}

// TestIndex checks that docs/README.md links to each page of docs/.
func TestIndex(t *testing.T) {
	all := every(t)
	for path := range all {
		name, here := strings.CutPrefix(path, "docs/")
		if here && name != "README.md" && !strings.Contains(all["docs/README.md"], "]("+name) {
			t.Errorf("docs/README.md does not lead to %s", name)
		}
	}
}

// reservedLabels is the list of the labels that device series can have.
var reservedLabels = regexp.MustCompile(`(?s)func reservedLabels\(.*?\n\t}`)

// TestMigrationLabels checks that docs/migration.md explains each label.
func TestMigrationLabels(t *testing.T) {
	page, found := read(t, "docs/migration.md"), 0
	_, page, _ = strings.Cut(page, "\n## Labels\n")
	page, _, _ = strings.Cut(page, "\n## ")
	for _, m := range regexp.MustCompile(`"(\w+)": true`).FindAllStringSubmatch(reservedLabels.FindString(read(t, "pkg/owner/labels.go")), -1) {
		found++
		if !strings.Contains(page, "`"+m[1]+"`") {
			t.Errorf("the label %s is not in docs/migration.md", m[1])
		}
	}
	if found < 20 {
		t.Errorf("found %d labels only", found)
	}
}
