package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// value is where a flag keeps what it was set to. Set and String take and give
// the same text.
type value interface {
	Set(text string) error
	String() string
}

// Tristate is the setting of a vendor's collector.
type Tristate uint8

const (
	Auto Tristate = iota // use it where the hardware and the library are
	On                   // the same, and the user expects it to be there
	Off                  // never touch the library
)

func (t Tristate) String() string { return [...]string{"auto", "true", "false"}[t] }

func parseTristate(s string) (Tristate, error) {
	if strings.EqualFold(s, "auto") {
		return Auto, nil
	}
	on, err := strconv.ParseBool(s)
	if err != nil {
		return Auto, errors.New("write auto, true or false")
	}
	if on {
		return On, nil
	}
	return Off, nil
}

// variable is a value of any type, kept in the Config.
type variable[T any] struct {
	at     *T
	parse  func(string) (T, error)
	format func(T) string
	bare   bool // the flag alone means "true"
}

func (v *variable[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err != nil {
		return err
	}
	*v.at = parsed
	return nil
}

func (v *variable[T]) String() string { return v.format(*v.at) }
func (v *variable[T]) isBare() bool   { return v.bare }

func text(at *string) value {
	same := func(s string) string { return s }
	return &variable[string]{at: at, parse: func(s string) (string, error) { return s, nil }, format: same}
}

func boolean(at *bool) value {
	parse := func(s string) (bool, error) {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return false, errors.New("write true or false")
		}
		return b, nil
	}
	return &variable[bool]{at: at, parse: parse, format: strconv.FormatBool, bare: true}
}

func tristate(at *Tristate) value {
	return &variable[Tristate]{at: at, parse: parseTristate, format: Tristate.String, bare: true}
}

func integer(at *int) value {
	parse := func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0, errors.New("write a whole number")
		}
		return n, nil
	}
	return &variable[int]{at: at, parse: parse, format: strconv.Itoa}
}

func unsigned(at *uint64) value {
	parse := func(s string) (uint64, error) {
		n, err := strconv.ParseUint(s, 0, 64)
		if err != nil {
			return 0, errors.New("write a whole number that is not negative")
		}
		return n, nil
	}
	return &variable[uint64]{at: at, parse: parse, format: func(n uint64) string { return strconv.FormatUint(n, 10) }}
}

// maxMillis keeps a number of milliseconds inside a time.Duration.
const maxMillis = int64(1<<63-1) / int64(time.Millisecond)

// millis is an interval that is written as a bare number of milliseconds.
func millis(at *time.Duration) value {
	parse := func(s string) (time.Duration, error) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 || n > maxMillis {
			return 0, errors.New("write a whole number of milliseconds, without a unit")
		}
		return time.Duration(n) * time.Millisecond, nil
	}
	format := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return &variable[time.Duration]{at: at, parse: parse, format: format}
}

func duration(at *time.Duration) value {
	parse := func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return 0, errors.New("write a duration with its unit, such as 500ms, 30s or 5m")
		}
		return d, nil
	}
	return &variable[time.Duration]{at: at, parse: parse, format: shortDuration}
}

// shortDuration prints 5m for 5m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// byteUnits are what a size may end with.
var byteUnits = [...]struct {
	name string
	size int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

// byteSize is a size with a unit, "512MiB", or a bare number of bytes.
func byteSize(at *int64) value {
	return &variable[int64]{at: at, parse: parseBytes, format: formatBytes}
}

func parseBytes(s string) (int64, error) {
	unit, digits := int64(1), s
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			unit, digits = u.size, strings.TrimSpace(rest)
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > (1<<63-1)/unit {
		return 0, errors.New("write a size such as 512MiB, 1GiB or a number of bytes")
	}
	return n * unit, nil
}

func formatBytes(n int64) string {
	for _, u := range []int{2, 1, 0} {
		if size := byteUnits[u].size; n >= size && n%size == 0 {
			return strconv.FormatInt(n/size, 10) + byteUnits[u].name
		}
	}
	return strconv.FormatInt(n, 10)
}

// oneOf accepts the listed words, in any case where fold is set.
func oneOf(at *string, fold bool, words ...string) value {
	parse := func(s string) (string, error) {
		for _, w := range words {
			if s == w || fold && strings.EqualFold(s, w) {
				return w, nil
			}
		}
		return "", fmt.Errorf("write one of %s", strings.Join(words, ", "))
	}
	return &variable[string]{at: at, parse: parse, format: func(s string) string { return s }}
}

func selector(at *Selector) value {
	return &variable[Selector]{at: at, parse: ParseSelector, format: Selector.String}
}

// list is a comma list that may also be given several times.
type list struct{ at *[]string }

func (l list) Set(text string) error {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			*l.at = append(*l.at, item)
		}
	}
	return nil
}

func (l list) String() string { return strings.Join(*l.at, ",") }
func (l list) reset()         { *l.at = nil }
