package config

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
)

// Value parses and formats the setting of a flag. Set accepts the text that String returns. A Value with a
// method Reset() collects repeated values; the flag Set calls Reset before a source of higher rank, such as
// the command line, sets the value again.
type Value interface {
	Set(text string) error
	String() string
}

// Tristate is the setting of a vendor's collector.
type Tristate uint8

const (
	Auto Tristate = iota // use it if the hardware and the library are present
	On                   // the same, and the user expects it to be present
	Off                  // never touch the library
)

func (t Tristate) String() string { return [...]string{"auto", "true", "false"}[t] }

func parseTristate(s string) (Tristate, error) {
	if strings.EqualFold(s, "auto") {
		return Auto, nil
	}
	on, err := strconv.ParseBool(s)
	if on {
		return On, err
	}
	return Off, err
}

// variable is a value of any type in the Config.
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

// Text accepts any text.
func Text(at *string) Value {
	return &variable[string]{at: at, parse: func(s string) (string, error) { return s, nil }, format: same}
}

func same(s string) string { return s }

// or replaces a parser's error with advice.
func or[T any](parse func(string) (T, error), advice string) func(string) (T, error) {
	return func(s string) (T, error) {
		v, err := parse(s)
		if err != nil {
			return v, errors.New(advice)
		}
		return v, nil
	}
}

// Bool is a switch; the flag alone means true.
func Bool(at *bool) Value {
	return &variable[bool]{at: at, parse: or(strconv.ParseBool, "write true or false"), format: strconv.FormatBool, bare: true}
}

func tristate(at *Tristate) Value {
	return &variable[Tristate]{at: at, parse: or(parseTristate, "write auto, true or false"), format: Tristate.String, bare: true}
}

// Int accepts a whole number.
func Int(at *int) Value {
	return &variable[int]{at: at, parse: or(strconv.Atoi, "write a whole number"), format: strconv.Itoa}
}

func unsigned(at *uint64) Value {
	parse := func(s string) (uint64, error) { return strconv.ParseUint(s, 0, 64) }
	format := func(n uint64) string { return strconv.FormatUint(n, 10) }
	return &variable[uint64]{at: at, parse: or(parse, "write a whole number that is not negative"), format: format}
}

func level(at *zapcore.Level) Value {
	parse := func(s string) (zapcore.Level, error) {
		l, err := zapcore.ParseLevel(s)
		if err == nil && l > zapcore.ErrorLevel {
			err = errors.ErrUnsupported
		}
		return l, err
	}
	return &variable[zapcore.Level]{at: at, parse: or(parse, "write debug, info, warn or error"), format: zapcore.Level.String}
}

// configMapName accepts NAMESPACE:NAME, or none.
func configMapName(at *string) Value {
	const none = "none"
	parse := func(s string) (string, error) {
		ns, name, ok := strings.Cut(s, ":")
		if s != none && (!ok || ns == "" || name == "" || strings.Contains(name, ":")) {
			return "", fmt.Errorf("write NAMESPACE:NAME, or %s", none)
		}
		if s == none {
			return "", nil
		}
		return s, nil
	}
	format := func(s string) string { return cmp.Or(s, none) }
	return &variable[string]{at: at, parse: parse, format: format}
}

// maxMillis keeps a number of milliseconds inside a time.Duration.
const maxMillis = int64(1<<63-1) / int64(time.Millisecond)

// millis is an interval written as a bare number of milliseconds.
func millis(at *time.Duration) Value {
	parse := func(s string) (time.Duration, error) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 || n > maxMillis {
			return 0, fmt.Errorf("write a whole number of milliseconds, without a unit, at most %d", maxMillis)
		}
		return time.Duration(n) * time.Millisecond, nil
	}
	format := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return &variable[time.Duration]{at: at, parse: parse, format: format}
}

// Duration accepts a duration with its unit, such as 30s.
func Duration(at *time.Duration) Value {
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

// byteUnits lists the units of sizes.
var byteUnits = [...]struct {
	name string
	size int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

// Bytes accepts a size with a unit, "512MiB", or a bare number of bytes.
func Bytes(at *int64) Value {
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

// OneOf accepts the listed words.
func OneOf(at *string, words ...string) Value { return oneOf(at, false, words...) }

// oneOf accepts the listed words, in any case if fold is set.
func oneOf(at *string, fold bool, words ...string) Value {
	parse := func(s string) (string, error) {
		for _, w := range words {
			if s == w || fold && strings.EqualFold(s, w) {
				return w, nil
			}
		}
		return "", fmt.Errorf("write one of %s", strings.Join(words, ", "))
	}
	return &variable[string]{at: at, parse: parse, format: same}
}

func selector(at *Selector) Value {
	return &variable[Selector]{at: at, parse: ParseSelector, format: Selector.String}
}

// Number accepts a decimal number.
func Number(at *float64) Value {
	parse := func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }
	format := func(n float64) string { return strconv.FormatFloat(n, 'g', -1, 64) }
	return &variable[float64]{at: at, parse: or(parse, "write a number such as 0.5"), format: format}
}

// List is a comma list that may also be given several times.
func List(at *[]string) Value { return list{at} }

type list struct{ at *[]string }

func (l list) Set(text string) error {
	*l.at = append(*l.at, SplitList(text)...)
	return nil
}

func (l list) String() string { return strings.Join(*l.at, ",") }
func (l list) Reset()         { *l.at = nil }

// patterns is a comma list of regular expressions that may also be given several times.
type patterns struct{ at *[]*regexp.Regexp }

func (p patterns) Set(text string) error {
	var all []*regexp.Regexp
	for i, item := range SplitList(text) {
		r, err := regexp.Compile(item)
		if err != nil {
			return fmt.Errorf("expression %d, %q, is not a regular expression: %w; correct it (syntax: https://github.com/google/re2/wiki/Syntax), or leave it out to let all labels through", i+1, item, err)
		}
		all = append(all, r)
	}
	*p.at = append(*p.at, all...)
	return nil
}

func (p patterns) String() string {
	var all []string
	for _, r := range *p.at {
		all = append(all, r.String())
	}
	return strings.Join(all, ",")
}

func (p patterns) Reset() { *p.at = nil }

// SplitList returns the items of a comma list, trimmed and without empty ones.
func SplitList(text string) []string {
	items := strings.Split(text, ",")
	for i, item := range items {
		items[i] = strings.TrimSpace(item)
	}
	return slices.DeleteFunc(items, func(s string) bool { return s == "" })
}
