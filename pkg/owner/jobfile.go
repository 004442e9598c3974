package owner

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/file"
)

// Bounds on the job directory. They are far above what a node has: 16 GPUs of 8
// instances are 144 files, and 48 processes can share a GPU under MPS.
const (
	maxFiles = 1 << 10  // job files
	maxSize  = 64 << 10 // bytes of a file
	maxJobs  = 128      // jobs of a device; each is a copy of the device's series
	maxJobID = 256      // bytes of a job id
	maxIndex = 1 << 16  // of a GPU or an instance
)

// jobFile is what is known of one job file.
type jobFile struct {
	jobs  []string          // believed
	about []collector.Label // of the one job, if the file says that itself
	last  content           // that could not be believed
	since time.Time         // when last was first read; zero: all is believed
	doubt time.Time         // since when the file has said nothing that can be believed
}

// take believes a content that is complete, and another one when it has not changed for
// a while.
func (f *jobFile) take(c content, now time.Time) {
	if c.reason == ReasonIO && c.whole {
		return // the file said nothing: what it said before stays, however long it takes
	}
	if !c.open && !c.whole {
		*f = jobFile{jobs: c.jobs, about: c.about}
		return
	}
	if f.since.IsZero() && f.last.equal(c) && (f.last.open || f.last.whole) {
		return // it was believed in the end
	}
	if f.doubt.IsZero() {
		f.doubt = now
	}
	if f.since.IsZero() || !f.last.equal(c) {
		f.last, f.since = c, now
	}
	switch {
	case c.open && now.Sub(f.since) >= jobPatience:
		*f = jobFile{jobs: c.all(), last: c}
	case now.Sub(f.doubt) >= jobGrace:
		// It changes all the time, so that its last line may be half written; or it cannot
		// be used.
		*f = jobFile{jobs: c.jobs, last: c}
	}
}

// content is what a file says, or why it says nothing.
type content struct {
	jobs   []string          // of the lines that have an end
	tail   string            // job of the last line, which has no end: perhaps half written
	open   bool              // the last line has no end, or there is nothing at all
	about  []collector.Label // of the one job, if the file says that itself
	reason string            // why the file, or a line of it, is left out; empty: all is well
	err    error             // of reason, if the system gave one
	whole  bool              // reason is about the whole file
}

func (c content) equal(d content) bool {
	return slices.Equal(c.jobs, d.jobs) && slices.Equal(c.about, d.about) && c.tail == d.tail && c.open == d.open && c.reason == d.reason && c.whole == d.whole
}

// all returns the jobs of a file that is complete as it is.
func (c content) all() []string {
	if c.tail == "" || slices.Contains(c.jobs, c.tail) || len(c.jobs) == maxJobs {
		return c.jobs
	}
	return append(slices.Clip(c.jobs), c.tail)
}

// readJobFile reads a file without ever waiting for a writer of a FIFO or for a device.
func readJobFile(root *os.Root, name string) content {
	text, err := file.ReadIn(root, name, maxSize)
	if err != nil {
		return unusable(err)
	}
	return parseJobs(text)
}

// unusable is the content of a file that the system does not let us read.
func unusable(err error) content {
	c := content{reason: fileReason(err), err: err, whole: true}
	var errno syscall.Errno
	switch {
	case errors.Is(err, file.ErrTooLarge):
		c.reason = ReasonTooLarge
	case !errors.As(err, &errno): // not a regular file; or a link that leads out of the directory, which os.Root refuses
		c.reason = ReasonNotAFile
	case errno == syscall.ELOOP, errno == syscall.ENOTDIR, errno == syscall.ENXIO: // a link to nowhere, a socket
		c.reason = ReasonNotAFile
	}
	return c
}

func fileReason(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return ReasonDenied
	}
	return ReasonIO
}

// parseJobs reads a file's text: one job id per line, or a job as JSON. Blanks around an id, a carriage
// return and empty lines do not count, nor does a job that was named before.
func parseJobs(text []byte) content {
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		// Not a text, or what a crash has left of one: no line of it can be trusted.
		return content{reason: ReasonBadContent, whole: true}
	}
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return parseJSONJob(text)
	}
	c := content{open: len(text) == 0}
	for len(text) > 0 && !c.open {
		var line []byte
		var ended bool
		line, text, ended = bytes.Cut(text, []byte{'\n'})
		c.open = !ended
		c.add(string(bytes.TrimSpace(line)))
	}
	return c
}

func (c *content) add(line string) {
	switch {
	case line == "":
	case len(line) > maxJobID || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }):
		c.reason = ReasonBadContent
	case c.open:
		c.tail = line
	case slices.Contains(c.jobs, line):
	case len(c.jobs) == maxJobs:
		c.reason = ReasonManyJobs
	default:
		c.jobs = append(c.jobs, line)
	}
}

// jobNames returns the names of the job files in a directory, those with the lowest
// numbers if there are too many. Other names take no memory, however many there are.
func jobNames(root *os.Root, problems map[string]*fileProblem) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // it was only read
	var out []string
	for {
		names, err := dir.Readdirnames(maxFiles)
		for _, name := range names {
			switch nameOf(name) {
			case deviceName:
				out = append(out, name)
			case badName:
				note(problems, ReasonBadName, name, nil)
			case otherName:
			}
		}
		slices.SortFunc(out, compareNames)
		for ; len(out) > maxFiles; out = out[:len(out)-1] {
			note(problems, ReasonManyFiles, out[len(out)-1], nil)
		}
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
	}
}

// nameKind says what a name in the directory is.
type nameKind int

const (
	otherName  nameKind = iota // temporary files, notes
	deviceName                 // of a job file
	badName                    // of digits, but of no device
)

// nameOf recognises job files by their names: digits, and after a dot digits again.
// Numbers are written as in labels, so 00 is not a GPU.
func nameOf(name string) nameKind {
	gpu, instance, split := strings.Cut(name, ".")
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	index := func(s string) bool {
		n, err := strconv.Atoi(s)
		return err == nil && n < maxIndex && strconv.Itoa(n) == s
	}
	switch {
	case !digits(gpu) || split && !digits(instance):
		return otherName
	case !index(gpu) || split && !index(instance):
		return badName
	}
	return deviceName
}

// compareNames orders job files by GPU, then instance. Numbers have no leading zeros.
func compareNames(a, b string) int {
	gpuA, instanceA, _ := strings.Cut(a, ".")
	gpuB, instanceB, _ := strings.Cut(b, ".")
	return cmp.Or(cmp.Compare(len(gpuA), len(gpuB)), cmp.Compare(gpuA, gpuB),
		cmp.Compare(len(instanceA), len(instanceB)), cmp.Compare(instanceA, instanceB))
}
