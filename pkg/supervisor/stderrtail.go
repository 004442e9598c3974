package supervisor

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// stderrTail keeps the end of a child's stderr: the last lines, or the lines around the first crash report, because a
// goroutine trace of hundreds of lines follows it. Output owns it until the child has ended.
type stderrTail struct {
	lines []string
	crash int // index in lines + 1 of the crash report; 0: none
}

const (
	wordsLines = 24
	wordsAfter = 12 // lines kept after the crash report
)

var (
	// crashLine matches the Go runtime's report of a fatal error.
	crashLine = regexp.MustCompile(`^(SIG[A-Z0-9]+: .*|fatal error: .*|panic: .*|runtime: .*)$`)
	// assertLine matches messages of C and C++ libraries before abort().
	assertLine = regexp.MustCompile(`(?i)assert|terminate called|corrupt|free\(\)|malloc|stack smashing|buffer overflow|what\(\):`)
)

// appendLine records a line.
func (w *stderrTail) appendLine(line string) {
	switch {
	case w.crash > 0 && len(w.lines) == w.crash+wordsAfter:
		return
	case w.crash == 0 && len(w.lines) == wordsLines:
		w.lines = slices.Delete(w.lines, 0, 1)
	}
	w.lines = append(w.lines, line)
	if w.crash == 0 && crashLine.MatchString(line) {
		w.crash = len(w.lines)
	}
}

// text returns all kept lines.
func (w *stderrTail) text() string {
	return strings.Join(w.lines, "\n")
}

// explain classifies the end of a process by its output. The reason is "" without a crash report.
func (w *stderrTail) explain() (reason, text string) {
	if w.crash == 0 {
		return "", ""
	}
	line := w.lines[w.crash-1]
	if !strings.HasPrefix(line, "SIGABRT") {
		return ReasonCrash, "crashed: " + line
	}
	return ReasonAbort, w.aborted(w.crash - 1)
}

// aborted names the last line before line n that looks like an assertion, else the last line.
func (w *stderrTail) aborted(n int) string {
	for _, line := range slices.Backward(w.lines[:n]) {
		if assertLine.MatchString(line) {
			return "aborted: " + line
		}
	}
	return "aborted: " + cmp.Or(w.last(n), "nothing was said")
}

// last returns the last non-empty line before line n.
func (w *stderrTail) last(n int) (text string) {
	for _, line := range slices.Backward(w.lines[:n]) {
		text = cmp.Or(text, strings.TrimSpace(line))
	}
	return text
}
