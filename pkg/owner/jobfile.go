package owner

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/file"
)

// Limits on the job directory, far above any node: 16 GPUs with 8 instances have 144 files, and 48 processes can share
// a GPU under MPS.
const (
	maxFiles = 1 << 10  // job files
	maxSize  = 64 << 10 // bytes of a file
	maxJobs  = 128      // per device; each is a copy of the device's series
	maxJobID = 256      // bytes of a job id
)

// jobFile is the state of one job file.
type jobFile struct {
	accepted content
	last     content // of the last read
	pending  bool    // last is not accepted
}

// update accepts a complete content at once. It accepts an incomplete or unusable one when two reads agree.
func (f *jobFile) update(c content) {
	now, was := c, f.last
	now.err, was.err = nil, nil
	f.pending = (c.open || c.whole) && !reflect.DeepEqual(now, was) //nolint:govet // the errors are nil
	// An unreadable file leaves the accepted content as long as that lasts.
	if !f.pending && c.reason != ReasonIO {
		f.accepted = c
	}
	f.last = c
}

// content is a parsed file, or the reason why it cannot be used.
type content struct {
	jobs   []string          // without duplicates
	open   bool              // the last line has no end, or the file is empty
	about  []collector.Label // labels of the only job, if the file has them
	reason string            // why the file or a line was dropped; empty: nothing was dropped
	err    error             // the system's error for reason, if any
	whole  bool              // reason concerns the whole file
}

// readJobFile reads a file without waiting for a FIFO's writer or for a device.
func readJobFile(root *os.Root, name string) content {
	text, err := file.ReadIn(root, name, maxSize)
	if err != nil {
		return unusable(err)
	}
	return parseJobs(text)
}

// unusable returns the content for a file that cannot be read.
func unusable(err error) content {
	c := content{reason: fileReason(err), err: err, whole: true}
	var errno syscall.Errno
	switch {
	case errors.Is(err, file.ErrTooLarge):
		c.reason = ReasonTooLarge
	case !errors.As(err, &errno): // not a regular file; or a link out of the directory, which os.Root refuses
		c.reason = ReasonNotAFile
	case errno == syscall.ELOOP, errno == syscall.ENOTDIR, errno == syscall.ENXIO: // a broken link, a socket
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

// parseJobs parses a file: one job ID per line, or a job as JSON. It ignores blanks around an ID,
// carriage returns, empty lines and duplicates.
func parseJobs(text []byte) content {
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		// Binary, or damaged by a crash: none of its lines can be trusted.
		return content{reason: ReasonBadContent, whole: true}
	}
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
		return parseJSONJob(text)
	}
	c := content{open: !bytes.HasSuffix(text, []byte{'\n'})}
	for line := range bytes.Lines(text) {
		c.addLine(string(bytes.TrimSpace(line)))
	}
	return c
}

func (c *content) addLine(line string) {
	switch {
	case line == "" || slices.Contains(c.jobs, line):
	case len(line) > maxJobID || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }):
		c.reason = ReasonBadContent
	case len(c.jobs) == maxJobs:
		c.reason = ReasonManyJobs
	default:
		c.jobs = append(c.jobs, line)
	}
}

// jobNames returns the names of the job files in a directory, the lowest numbers if there are too many. Other names
// take no memory.
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
			switch {
			case jobFileName.MatchString(name):
				out = append(out, name)
			case likeJobFile.MatchString(name):
				countProblem(problems, ReasonBadName, name, nil)
			}
		}
		slices.SortFunc(out, compareNames)
		for ; len(out) > maxFiles; out = out[:len(out)-1] {
			countProblem(problems, ReasonManyFiles, out[len(out)-1], nil)
		}
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
	}
}

// Names of job files: digits, optionally a dot and digits. Numbers must be written as in labels, so 00 is not a GPU.
var (
	jobFileName = regexp.MustCompile(`^(0|[1-9]\d{0,4})(\.(0|[1-9]\d{0,4}))?$`)
	likeJobFile = regexp.MustCompile(`^\d+(\.\d+)?$`)
)

// compareNames orders job files by GPU, then instance. Numbers have no leading zeros.
func compareNames(a, b string) int {
	gpuA, instanceA, _ := strings.Cut(a, ".")
	gpuB, instanceB, _ := strings.Cut(b, ".")
	return cmp.Or(cmp.Compare(len(gpuA), len(gpuB)), cmp.Compare(gpuA, gpuB),
		cmp.Compare(len(instanceA), len(instanceB)), cmp.Compare(instanceA, instanceB))
}
