package dcgmtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Words of the control file, which the library maps and this package reads and
// writes with pread and pwrite. lib/fake.h has the same list.
const (
	wordMagic = iota
	wordGeneration
	wordErrors
	wordHanging
	wordEngine
	wordInits
	wordConnections
	wordEmbedded
	wordGroups
	wordFieldGroups
	wordWatches
	wordHealthWatches
	wordPaused
	wordFailAt
	wordFailCode
	wordFailed
	wordMostValues
	wordLimits
	wordVersions
	wordSeverity
	wordChanges

	messageOffset = 1024 // the last error's text, ends with a zero byte
	logOffset     = 2048 // the log file of an embedded engine
	callsOffset   = 4096 // calls of each function, in the order of functions.def
	controlSize   = callsOffset + 4096

	controlMagic = 0x6d676364_32677277
)

// control is the Go side of the control file.
type control struct{ file *os.File }

func newControl(path string) (*control, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(controlSize); err != nil {
		return nil, err
	}
	c := &control{f}
	return c, c.write(wordMagic, controlMagic)
}

func (c *control) read(word int) (uint64, error) { return c.readAt(int64(word) * 8) }

func (c *control) readAt(at int64) (uint64, error) {
	var b [8]byte
	if _, err := c.file.ReadAt(b[:], at); err != nil {
		return 0, fmt.Errorf("read control file: %w", err)
	}
	return binary.NativeEndian.Uint64(b[:]), nil
}

func (c *control) write(word int, value uint64) error {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], value)
	if _, err := c.file.WriteAt(b[:], int64(word)*8); err != nil {
		return fmt.Errorf("write control file: %w", err)
	}
	return nil
}

// next adds one to a word that only this side writes.
func (c *control) next(word int) error {
	g, err := c.read(word)
	if err != nil {
		return err
	}
	return c.write(word, g+1)
}

func (c *control) text(offset, end int64) string {
	b := make([]byte, end-offset)
	n, _ := c.file.ReadAt(b, offset)
	text, _, _ := strings.Cut(string(b[:n]), "\x00")
	return text
}

// Reread makes the library that Write put into a directory read its script again.
func Reread(dir string) error { return bump(dir, wordGeneration) }

// Restart loses the connections to the engine of a directory.
func Restart(dir string) error { return bump(dir, wordEngine) }

func bump(dir string, word int) error {
	f, err := os.OpenFile(filepath.Join(dir, "script.control"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join((&control{f}).next(word), f.Close())
}
