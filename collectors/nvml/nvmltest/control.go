package nvmltest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// The control file, which the library maps and this package reads and writes with
// pread and pwrite: 64-bit words in the machine's order. lib/control.c has the
// same list.
const (
	wordMagic      = iota
	wordGeneration // a change makes the library read its script again
	wordErrors     // scripts that it could not read
	wordInits      // initialisations in force, counted as NVML does, of all processes
	wordFiles      // devices that it holds open
	wordEventSets
	wordSamples // of GPM
	wordHanging // calls that hang
	wordEpoch   // CLOCK_MONOTONIC in ns that a script without one counts from

	messageOffset = 2048 // the last error's text, ends with a zero byte
	callsOffset   = 4096 // calls of each function, in the order of functions.def
	controlSize   = callsOffset + 8*1024

	controlMagic = 0x6c6d766e_32677277
)

// control is the Go side of the control file.
type control struct {
	mu   sync.Mutex // over the generation
	file *os.File   // for the life of the process
}

func newControl(path string) (*control, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(controlSize); err != nil {
		return nil, err
	}
	c := &control{file: f}
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

// next tells the library of a new script.
func (c *control) next() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	g, err := c.read(wordGeneration)
	if err != nil {
		return err
	}
	return c.write(wordGeneration, g+1)
}

// message is the text of the last error.
func (c *control) message() string {
	b := make([]byte, callsOffset-messageOffset)
	n, _ := c.file.ReadAt(b, messageOffset)
	text, _, _ := strings.Cut(string(b[:n]), "\x00")
	return text
}

// Reread makes the library that Write put into a directory read its script again.
func Reread(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "script.control"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join((&control{file: f}).next(), f.Close())
}
