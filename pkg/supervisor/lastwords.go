package supervisor

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// lastWords keeps the end of what a child writes to stderr: the last lines, or
// those around the first one that reports a crash, since a goroutine trace of
// hundreds of lines follows it.
type lastWords struct {
	mu    sync.Mutex
	lines []string
	crash int // index in lines + 1 of the line that reports a crash; 0: none
	after int // lines taken since
}

const (
	wordsLines = 24
	wordsAfter = 12 // lines kept after the one that reports a crash
)

var (
	// crashLine begins what the Go runtime writes when the process is beyond help.
	crashLine = regexp.MustCompile(`^(SIG[A-Z0-9]+: .*|fatal error: .*|panic: .*|runtime: .*)$`)
	// assertLine is what C and C++ libraries write before abort().
	assertLine = regexp.MustCompile(`(?i)assert|terminate called|corrupt|free\(\)|malloc|stack smashing|buffer overflow|what\(\):`)
)

// add takes a line.
func (w *lastWords) add(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.crash > 0:
		if w.after < wordsAfter {
			w.after++
			w.lines = append(w.lines, line)
		}
		return
	case len(w.lines) == wordsLines:
		w.lines = slices.Delete(w.lines, 0, 1)
	}
	w.lines = append(w.lines, line)
	if crashLine.MatchString(line) {
		w.crash = len(w.lines)
	}
}

// crashed reports whether a line has reported a crash.
func (w *lastWords) crashed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.crash > 0
}

// text returns all lines kept.
func (w *lastWords) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.lines, "\n")
}

// explain classifies the end of a process by what it wrote. It returns no
// reason if nothing reports a crash.
func (w *lastWords) explain() (reason, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.crash == 0 {
		return "", ""
	}
	line := w.lines[w.crash-1]
	if !strings.HasPrefix(line, "SIGABRT") {
		return ReasonCrash, "crashed: " + line
	}
	return ReasonAbort, "aborted: " + w.assertion(w.crash-1)
}

// assertion finds what was said before line n: what looks like an assertion,
// else the last line.
func (w *lastWords) assertion(n int) string {
	said := "nothing was said"
	for i, line := range slices.Backward(w.lines[:n]) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if i == n-1 || said == "nothing was said" {
			said = line
		}
		if assertLine.MatchString(line) {
			return line
		}
	}
	return said
}

// last returns the last line that is not empty.
func (w *lastWords) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range slices.Backward(w.lines) {
		if strings.TrimSpace(line) != "" {
			return line
		}
	}
	return ""
}

// said returns the assertion that the last lines hold, if any.
func (w *lastWords) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.assertion(len(w.lines))
}
