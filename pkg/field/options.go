package field

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Limits of options.
const (
	minInterval = 10 * time.Millisecond
	maxInterval = time.Hour
	maxBuckets  = 100
)

// readOptions reads the fourth cell into f and reports whether it is good.
func (p *parser) readOptions(f *Field, r *record) bool {
	good := true
	seen := map[string]bool{}
	for option := range strings.FieldsFuncSeq(r.Options, isOptionEnd) {
		name, value, found := strings.Cut(option, "=")
		var err error
		switch {
		case !found:
			err = fmt.Errorf("%v is no option; a help text with a comma must be in double quotes", quoted(option))
		case seen[name]:
			err = fmt.Errorf("option %v is there twice", quoted(name))
		default:
			err = f.set(name, value)
		}
		if err != nil {
			p.fail(r.Line, r.OptionCol, "%s", err)
			good = false
		}
		seen[name] = true
	}
	return good
}

func isOptionEnd(r rune) bool { return r == ' ' || r == '\t' || r == ';' }

var allOptions = []string{"interval", "buckets"}

// set reads one option.
func (f *Field) set(name, value string) (err error) {
	switch name {
	case "interval":
		f.Interval, err = readInterval(value)
		if err == nil && f.Type == Label {
			err = fmt.Errorf("option interval has no meaning for type label")
		}
	case "buckets":
		f.Buckets, err = readBuckets(value)
		if err == nil && f.Type != Histogram {
			err = fmt.Errorf("option buckets is only for type histogram")
		}
	default:
		if better, ok := nearest(name, allOptions); ok {
			return fmt.Errorf("unknown option %v, did you mean %v?", quoted(name), quoted(better))
		}
		return fmt.Errorf("unknown option %v; options are interval=DURATION and buckets=A|B|C", quoted(name))
	}
	return err
}

func readInterval(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("bad interval %v; write it as 100ms, 5s or 1m", quoted(s))
	case d < minInterval || d > maxInterval:
		return 0, fmt.Errorf("interval %v is not between %v and %v", quoted(s), minInterval, maxInterval)
	}
	return d, nil
}

func readBuckets(s string) ([]float64, error) {
	parts := strings.Split(s, "|")
	if len(parts) > maxBuckets {
		return nil, fmt.Errorf("%d buckets are more than %d", len(parts), maxBuckets)
	}
	out := make([]float64, len(parts))
	for i, part := range parts {
		v, err := strconv.ParseFloat(part, 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("bad bucket %v in %v; write buckets=1|5|10, without +Inf", quoted(part), quoted(s))
		}
		if i > 0 && v <= out[i-1] {
			return nil, fmt.Errorf("buckets %v do not ascend", quoted(s))
		}
		out[i] = v + 0 // -0 becomes 0
	}
	return out, nil
}
