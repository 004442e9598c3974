// Package golden compares a test's output with a file of the repository.
package golden

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"

	"warpgauge/internal/testkit"
)

var update = flag.Bool("update", false, "write the files that tests compare with")

// Check fails the test if the content of the file at path is not got; with -update it writes the file first.
func Check(t testing.TB, path, got string) {
	t.Helper()
	if *update {
		testkit.Must(t, os.WriteFile(path, []byte(got), 0o600)) //nolint:gosec // the test names the file
	}
	want, err := os.ReadFile(path)
	testkit.Must(t, err)
	testkit.Equal(t, path+", which -update writes", string(want), got)
}

var section = regexp.MustCompile(`(?s)(<!-- made: (\w+) -->\n).*?(<!-- end -->\n)`)

// Fill is Check for a hand-written page with generated tables: it puts each text between the lines "<!-- made: NAME
// -->" and "<!-- end -->" of the file, and returns the page.
func Fill(t testing.TB, path string, texts map[string]string) string {
	t.Helper()
	page, err := os.ReadFile(path)
	testkit.Must(t, err)
	used := 0
	out := section.ReplaceAllStringFunc(string(page), func(s string) string {
		m := section.FindStringSubmatch(s)
		text, known := texts[m[2]]
		if !known {
			t.Errorf("%s: no text for section %q", path, m[2])
		}
		used++
		return m[1] + text + m[3]
	})
	testkit.Equal(t, "sections of "+path, len(texts), used)
	Check(t, path, out)
	return out
}

// Protobuf returns a page of protobuf messages as text that does not depend on the library's version: one line for each
// family and metric.
func Protobuf(t testing.TB, page string) string {
	t.Helper()
	var b strings.Builder
	line := func(m interface{ String() string }) {
		b.WriteString(strings.Join(strings.Fields(m.String()), " ") + "\n")
	}
	for in := strings.NewReader(page); in.Len() > 0; {
		var f dto.MetricFamily
		testkit.Must(t, protodelim.UnmarshalFrom(in, &f))
		metrics := f.Metric
		f.Metric = nil
		line(&f)
		for _, m := range metrics {
			b.WriteString("  ")
			line(m)
		}
	}
	return b.String()
}
