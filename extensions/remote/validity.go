package remote

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"warpgauge/pkg/lists"
)

// mark begins a comment line, in CSV and YAML, with instructions for the exporter.
const mark = "# warpgauge:"

// maxDirective bounds the length of a marked line.
const maxDirective = 1 << 10

// readValidity returns the end of a list from the marked comment lines at its top, or the zero Time. It refuses an
// invalid line, because a typing error must not make a debugging list permanent.
func readValidity(content []byte) (until time.Time, refused []lists.Refusal) {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	number := 0
	for line := range bytes.Lines(content) {
		number++
		text := strings.TrimSpace(string(line[:min(len(line), maxDirective)]))
		switch {
		case text != "" && text[0] != '#' && text != "---": // the list begins
			return until, refused
		case !strings.HasPrefix(text, mark):
			continue
		case len(line) > maxDirective:
			refused = append(refused, lists.Refusal{Line: number, Text: "the line is too long"})
			continue
		}
		for _, option := range strings.Fields(strings.TrimPrefix(text, mark)) {
			name, value, _ := strings.Cut(option, "=")
			t, err := time.Parse(time.RFC3339, value)
			switch {
			case name != "until":
				err = fmt.Errorf("unknown option %q: write until=TIME", option)
			case err != nil:
				err = fmt.Errorf("%q: write a time such as until=2026-05-01T18:00:00Z", option)
			case !until.IsZero():
				err = fmt.Errorf("%q: the list has a time already", option)
			default:
				until = t.UTC()
			}
			if err != nil {
				refused = append(refused, lists.Refusal{Line: number, Text: err.Error()})
			}
		}
	}
	return until, refused
}
