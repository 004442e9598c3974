package exposition

import (
	"strings"
	"unicode/utf8"
)

// printable replaces what a page cannot carry: what is not UTF-8, and NUL, which
// ends the input of Prometheus' text parser.
func printable(s string) string {
	const replacement = string(utf8.RuneError)
	return strings.ReplaceAll(strings.ToValidUTF8(s, replacement), "\x00", replacement)
}

// appendLabelValue appends a label value between quotes. Text and OpenMetrics
// escape the same three characters.
func appendLabelValue(b []byte, s string) []byte {
	b = append(b, '"')
	b = appendEscaped(b, s, true)
	return append(b, '"')
}

// appendEscaped appends s with backslash and newline escaped, and the double
// quote where the format wants that: in label values, and in OpenMetrics' HELP
// but not in that of text 0.0.4.
func appendEscaped(b []byte, s string, quote bool) []byte {
	done := 0
	for i := range len(s) {
		var c byte
		switch s[i] {
		case '\\':
			c = '\\'
		case '\n':
			c = 'n'
		case '"':
			if !quote {
				continue
			}
			c = '"'
		default:
			continue
		}
		b = append(b, s[done:i]...)
		b = append(b, '\\', c)
		done = i + 1
	}
	return append(b, s[done:]...)
}

// isLabelName reports whether s may be the name of a label of ours: legal in
// every format and not one that Prometheus keeps for itself.
func isLabelName(s string) bool {
	return isName(s, false) && !strings.HasPrefix(s, "__")
}

func isMetricName(s string) bool { return isName(s, true) }

func isName(s string, colon bool) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c == ':' && colon
		digit := c >= '0' && c <= '9' && i > 0
		if !letter && !digit {
			return false
		}
	}
	return true
}
