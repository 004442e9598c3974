package testkit

import (
	"cmp"
	"strings"
	"testing"
)

// Has fails the test for each part that text lacks. what names the text.
func Has(tb testing.TB, what, text string, parts ...string) {
	tb.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			tb.Errorf("%s: no %q in\n%s", what, part, text)
		}
	}
}

// Lacks fails the test for each part that text has. what names the text.
func Lacks(tb testing.TB, what, text string, parts ...string) {
	tb.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			tb.Errorf("%s: %q in\n%s", what, part, text)
		}
	}
}

// Times fails the test unless text has part n times.
func Times(tb testing.TB, n int, text, part string) {
	tb.Helper()
	if got := strings.Count(text, part); got != n {
		tb.Errorf("%d times %q, want %d, in\n%s", got, part, n, text)
	}
}

// Between fails the test unless got is least, most, or in between. what names the value.
func Between[T cmp.Ordered](tb testing.TB, what string, least, most, got T) {
	tb.Helper()
	if got < least || got > most {
		tb.Errorf("%s: %v, want %v to %v", what, got, least, most)
	}
}

// AtMost fails the test if got is more than most. what names the value.
func AtMost[T cmp.Ordered](tb testing.TB, what string, most, got T) {
	tb.Helper()
	if got > most {
		tb.Errorf("%s: %v, want at most %v", what, got, most)
	}
}

// ErrorIf calls tb.Errorf if wrong is true. It evaluates the arguments in either case.
func ErrorIf(tb testing.TB, wrong bool, format string, args ...any) {
	tb.Helper()
	if wrong {
		tb.Errorf(format, args...)
	}
}

// FatalIf ends the test as tb.Fatalf does if wrong is true. It evaluates the arguments in either case.
func FatalIf(tb testing.TB, wrong bool, format string, args ...any) {
	tb.Helper()
	if wrong {
		tb.Fatalf(format, args...)
	}
}
