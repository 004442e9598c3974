package remote

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"warpgauge/pkg/lists"
)

// mark begins a comment line of a list that is for the exporter. Both CSV and YAML
// have such comments, and readers that do not know the mark skip them.
const mark = "# warpgauge:"

// longest is how long a list can be wanted for at most: beyond is a slip.
const longest = 366 * 24 * time.Hour

// validity is how long a list is wanted. The zero validity is for good.
type validity struct {
	until  time.Time     // without monotonic part; zero: length counts
	length time.Duration // zero: until counts
}

// readValidity reads the marked lines among the comments at the top of a list. It refuses a line that it cannot read, because
// a list for debugging must not stay after a slip.
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

// maxDirective bounds a marked line.
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

// end is when a list returns. The zero end is never.
type end struct {
	elapsed time.Time // by the monotonic clock
	wall    time.Time // by the wall clock, if that counts
}

// over reports whether a list's time is over. A wall clock that is set back prolongs nothing, because elapsed time counts too.
func (e end) over(now, wall time.Time) bool {
	return !e.elapsed.IsZero() && (!now.Before(e.elapsed) || !e.wall.IsZero() && !wall.Before(e.wall))
}
