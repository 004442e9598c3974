package hpc

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds on what strangers write. They are far above what a node has: 16 GPUs of
// 8 instances are 144 files, and 48 processes can share a GPU under MPS.
const (
	maxNames = 1 << 16  // names of the directory that are looked at
	maxFiles = 1 << 10  // job files
	maxSize  = 64 << 10 // bytes of a file
	maxJobs  = 128      // jobs of a device; each is a copy of the device's series
	maxJobID = 256      // bytes of a job id
	maxIndex = 1 << 16  // of a GPU or an instance
)

// content is what a file says, or why it says nothing.
type content struct {
	jobs   []string // of the lines that have an end
	tail   string   // job of the last line, which has none: perhaps half written
	open   bool     // the last line has no end, or there is nothing at all
	reason string   // why the file, or a line of it, is left out; empty: all is well
	err    error    // of reason, where the system gave one
	whole  bool     // reason is about the whole file
}

func (c content) equal(d content) bool {
	return slices.Equal(c.jobs, d.jobs) && c.tail == d.tail && c.open == d.open && c.reason == d.reason && c.whole == d.whole
}

// all are the jobs of a file that is complete as it is.
func (c content) all() []string {
	if c.tail == "" || slices.Contains(c.jobs, c.tail) || len(c.jobs) == maxJobs {
		return c.jobs
	}
	return append(slices.Clip(c.jobs), c.tail)
}

// parse reads a file's text: one job id per line. Blanks around an id, a carriage
// return and empty lines do not count, nor does a job that was named before.
func parse(text []byte) content {
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		// No text, or what a crash has left of one: no line of it is to be trusted.
		return content{reason: ReasonBadContent, whole: true}
	}
	c := content{open: len(text) == 0}
	for len(text) > 0 && !c.open {
		var line []byte
		var ended bool
		line, text, ended = bytes.Cut(text, []byte{'\n'})
		c.open = !ended
		c.add(line)
	}
	return c
}

func (c *content) add(line []byte) {
	line = bytes.TrimSpace(line)
	switch {
	case len(line) == 0:
	case !isJobID(line):
		c.reason = ReasonBadContent
	case c.open:
		c.tail = string(line)
	case slices.Contains(c.jobs, string(line)):
	case len(c.jobs) == maxJobs:
		c.reason = ReasonManyJobs
	default:
		c.jobs = append(c.jobs, string(line))
	}
}

// isJobID reports whether a line can be a label value that somebody can read.
func isJobID(line []byte) bool {
	return len(line) <= maxJobID && bytes.IndexFunc(line, unreadable) < 0
}

func unreadable(r rune) bool { return !unicode.IsPrint(r) }

// kind says what a name in the directory is.
type kind int

const (
	otherName  kind = iota // not for us: temporary files, notes
	deviceName             // of a job file
	badName                // of digits, but of no device
)

// nameOf tells job files by their names: digits, and after a dot digits again.
// Numbers are written as they are in labels, so 00 is no GPU.
func nameOf(name string) kind {
	gpu, instance, split := strings.Cut(name, ".")
	if !digits(gpu) || split && !digits(instance) {
		return otherName
	}
	if !number(gpu) || split && !number(instance) {
		return badName
	}
	return deviceName
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func number(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n < maxIndex && strconv.Itoa(n) == s
}

// compareNames orders job files by GPU, then instance.
func compareNames(a, b string) int {
	return slices.Compare(numbers(a), numbers(b))
}

func numbers(name string) []int {
	var out []int
	for part := range strings.SplitSeq(name, ".") {
		n, _ := strconv.Atoi(part) // checked by nameOf
		out = append(out, n)
	}
	return out
}
