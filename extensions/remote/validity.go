package remote

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"warpgauge/pkg/lists"
)

// mark begins a comment line with instructions for the exporter. CSV and YAML both have such
// comments, and other readers skip them.
const mark = "# warpgauge:"

// longest bounds the validity of a list; a longer one is a typing error.
const longest = 366 * 24 * time.Hour

// validity limits the time of a list. The zero value means no limit.
type validity struct {
	until  time.Time     // without a monotonic part; zero if length is set
	length time.Duration // zero if until is set
}

// readValidity reads the marked comment lines at the top of a list. It refuses an invalid line, because a typing error must
// not make a debugging list permanent.
func readValidity(content []byte) (v validity, refused []lists.Refusal) {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	number := 0
	for line := range bytes.Lines(content) {
		number++
		text := strings.TrimSpace(string(line[:min(len(line), maxDirective)]))
		switch {
		case text != "" && text[0] != '#' && text != "---": // the list begins
			return v, refused
		case !strings.HasPrefix(text, mark):
			continue
		case len(line) > maxDirective:
			refused = append(refused, lists.Refusal{Line: number, Text: "the line is too long"})
			continue
		}
		for _, option := range strings.Fields(strings.TrimPrefix(text, mark)) {
			if err := v.set(option); err != nil {
				refused = append(refused, lists.Refusal{Line: number, Text: err.Error()})
			}
		}
	}
	return v, refused
}

// maxDirective bounds the length of a marked line.
const maxDirective = 1 << 10

func (v *validity) set(option string) error {
	name, text, _ := strings.Cut(option, "=")
	switch {
	case name != "for" && name != "until":
		return fmt.Errorf("%q is no option: write for=DURATION or until=TIME", option)
	case *v != (validity{}):
		return fmt.Errorf("%q: the list has a time already", option)
	case name == "for":
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > longest {
			return fmt.Errorf("%q: write a duration up to a year, such as for=30m", option)
		}
		v.length = d
	default:
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return fmt.Errorf("%q: write a time such as until=2026-05-01T18:00:00Z", option)
		}
		v.until = t.UTC()
	}
	return nil
}

// end is when a list expires. The zero value means never.
type end struct {
	elapsed time.Time // by the monotonic clock
	wall    time.Time // by the wall clock; zero if only elapsed counts
}

// over reports whether a list has expired. Setting the wall clock back does not prolong it, because elapsed time counts too.
func (e end) over(now, wall time.Time) bool {
	return !e.elapsed.IsZero() && (!now.Before(e.elapsed) || !e.wall.IsZero() && !wall.Before(e.wall))
}
