package live

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"warpgauge/internal/testkit"
)

// FuzzHealthLine: whatever an exporter answers, health checks get one short line.
func FuzzHealthLine(f *testing.F) {
	f.Add("head", "GPU 3 xid_79: reboot", 5)
	f.Add("", "\x1b[2J\nGPU\u00e9"+strings.Repeat("é", 90), 2)
	f.Fuzz(func(t *testing.T, head, part string, n int) {
		var parts []string
		for i := range n % 20 {
			parts = append(parts, fmt.Sprint(part, i))
		}
		var b bytes.Buffer
		must(t, writeLine(&b, head, parts...))
		line, ok := strings.CutSuffix(b.String(), "\n")
		testkit.ErrorIf(t, !ok || len(line) > 80 || !utf8.ValidString(line) || strings.ContainsAny(line, "\n\x1b\r"), "%q, %q × %d: %q", head, part, n, line)
	})
}
