// Package docs holds the pages for users. Its tests compare them with the code: links lead somewhere, flags and metrics
// exist.
package docs

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/pages"
	"warpgauge/pkg/field"
)

// every returns every Markdown file of the repository by its path from the root.
func every(t *testing.T) map[string]string {
	t.Helper()
	return pages.Read(t, "..")
}

var (
	link    = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

func TestLinks(t *testing.T) {
	all := every(t)
	for path, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			u, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: link %q: %v", path, m[1], err)
				continue
			}
			if u.Scheme != "" {
				continue // another site
			}
			target := path
			if u.Path != "" {
				target = filepath.Join(filepath.Dir(path), u.Path)
			}
			if _, err := os.Stat(filepath.Join("..", target)); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: link to %q, which does not exist", path, m[1])
			}
			if u.Fragment != "" && !anchors(all[target])[u.Fragment] {
				t.Errorf("%s: link to %q, but there is no such heading", path, m[1])
			}
		}
	}
}

var mention = regexp.MustCompile(`(https?://\S+/)?\b((?:docs/[a-z-]+|README|SECURITY|CONTRIBUTING|ARCHITECTURE)\.md)(?:#([a-z0-9-]+))?`)

// TestMentions: the pages and headings that messages, comments, values and rules name exist.
func TestMentions(t *testing.T) {
	all, found := every(t), 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"node_modules", "dist", "bin", "testdata"}, d.Name())):
			return filepath.SkipDir
		case !slices.Contains([]string{".go", ".yaml", ".yml", ".tpl", ".txt", ".tmpl", ".csv", ".json", ".service", ".proto"}, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range mention.FindAllStringSubmatch(string(text), -1) {
			found++
			if page, ok := all[m[2]]; m[1] == "" && (!ok || m[3] != "" && !anchors(page)[m[3]]) && !elsewhere[m[0]] {
				t.Errorf("%s names %s, which is not there", strings.TrimPrefix(path, "../"), m[0])
			}
		}
		return nil
	})
	testkit.Must(t, err)
	if found < 100 {
		t.Errorf("found %d mentions only", found)
	}
}

// elsewhere lists pages of other projects and of tests.
var elsewhere = map[string]bool{
	"docs/a.md":                 true,
	"docs/driver-attributes.md": true, // ROCm/k8s-gpu-dra-driver
}

// anchors returns the anchors that common hosting sites give to headings.
func anchors(text string) map[string]bool {
	drop := regexp.MustCompile(`[^a-z0-9 _-]`)
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := drop.ReplaceAllString(strings.ToLower(m[1]), "")
		out[strings.ReplaceAll(name, " ", "-")] = true
	}
	return out
}

var (
	flagWord   = regexp.MustCompile(`(?:^|[\s(` + "`" + `])--([a-z][a-z0-9.-]*[a-z0-9])`)
	flagRow    = regexp.MustCompile("(?m)^\\| `--")
	metricWord = regexp.MustCompile(`\bwarpgauge_[a-z0-9_]*[a-z0-9]`)
)

// TestFlags checks that each --flag in a page is in the flag table or in the fleet server's. It skips commands, which
// the programs' own tests check. flags.md is generated from the flag table; a test of pkg/config keeps it current. A
// test of the fleet server compares its table with its flags.
func TestFlags(t *testing.T) {
	all := every(t)
	known := map[string]bool{"help": true, "version": true}
	for _, line := range strings.Split(all["docs/flags.md"]+all["docs/fleet.md"], "\n") {
		if !flagRow.MatchString(line) {
			continue
		}
		names, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		for _, m := range flagWord.FindAllStringSubmatch(names, -1) {
			known[m[1]] = true
		}
	}
	if len(known) < 50 {
		t.Fatalf("flags.md lists %d flags only", len(known))
	}
	for path, text := range all {
		for _, block := range pages.Code(text) {
			text = strings.Replace(text, block, "", 1)
		}
		for _, m := range flagWord.FindAllStringSubmatch(text, -1) {
			if !known[m[1]] && !othersFlags[m[1]] {
				t.Errorf("%s: --%s is not in the flag table", path, m[1])
			}
		}
	}
}

// othersFlags lists flags that pages name outside of commands, but that belong to other programs or to a subcommand.
var othersFlags = map[string]bool{
	"output": true, "tolerance": true, "guard": true, // compare, check
	"url": true, "ca-file": true, "insecure": true, "samples": true, // devices, once, top
	"once": true, "interval": true, // top
	"server": true, "cert-file": true, "key-file": true, // warpgauge-fleet
	"timeout": true, "bundle": true, "no-redact": true, "recordings": true, // doctor
	"listen": true, "at": true, // replay
	"device":    true,                                                                          // docker
	"pause":     true,                                                                          // dcgmi profile
	"build-arg": true, "cap-drop": true, "read-only": true, "security-opt": true, "user": true, // docker
	"set": true, "set-file": true, "set-json": true, "subresource": true, // helm, kubectl
	"reread": true, "restart": true, // nvmlfake, dcgmfake
	"no-dcgm-validation": true, "target-max-value": true, // dcgmproftester
	"query-gpu":      true, // nvidia-smi
	"now":            true, // systemctl
	"logs":           true, // helm test
	"ignore-missing": true, // sha256sum
}

// TestMetrics checks that each warpgauge_ metric in a page is in metrics.md, is in fleet.md, or is a family of recordings.
// metrics.md is generated from a running exporter; a test of extensions/remote/fleet compares fleet.md with a server.
func TestMetrics(t *testing.T) {
	known := pages.Metrics(t, "..")
	for _, row := range regexp.MustCompile("(?m)^\\| `(warpgauge_[a-z0-9_]+)` \\|").FindAllStringSubmatch(read(t, "docs/recorder.md"), -1) {
		known[row[1]] = true
	}
	scan(t, metricWord, 200, func(_, text string, m []int) string {
		name := text[m[0]:m[1]]
		if !slices.ContainsFunc(pages.Families(name), func(family string) bool { _, ok := known[family]; return ok }) {
			return name + " is not in metrics.md"
		}
		return ""
	})
}

// blocks calls f with each fenced block of a language.
func blocks(t *testing.T, language string, f func(path, text string)) {
	t.Helper()
	found := 0
	for path, text := range every(t) {
		for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
			found++
			f(path, m[1])
		}
	}
	if found == 0 {
		t.Errorf("no page has a block of %s", language)
	}
}

// TestExamples: the exporter accepts each CSV in a page without a warning. Each PromQL block parses, as one expression
// or as several with empty lines between them.
func TestExamples(t *testing.T) {
	blocks(t, "csv", func(path, text string) {
		_, problems, err := field.Parse(strings.NewReader(text), field.ParseOptions{File: path, Strict: true})
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: CSV example: %v %v", path, err, problems)
		}
	})
	blocks(t, "promql", func(path, text string) {
		for _, query := range strings.Split(text, "\n\n") {
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(query); err != nil {
				t.Errorf("%s: %v in\n%s", path, err, query)
			}
		}
	})
}
