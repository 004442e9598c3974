package simulated

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Words of every scripted library's control file. lib/simulated.h has the same list.
const (
	Generation = iota // a change makes the library read its script again
	Errors            // scripts that it could not read
	Hanging           // calls that hang
	FirstOwn          // start of a library's own words
)

// Other parts of the control file, see lib/simulated.h.
const (
	messageOffset = 1024 // why it could not read a script; ends with a zero byte
	textOffset    = 2048 // the library's text; ends with a zero byte
	callsOffset   = 4096 // a counter for each function, in the order of functions.def
	controlSize   = callsOffset + 8*maxFunctions

	maxFunctions = 1024
)

const (
	script        = "script"
	controlSuffix = ".control"
)

// Control is the Go side of a control file, which it reads and writes with pread and pwrite. Words are 64 bits in the
// machine's order. It is safe for concurrent use. A word that Next increments must not be written otherwise.
type Control struct {
	mu   sync.Mutex // serialises Next
	file *os.File
}

func newControl(path string) (*Control, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &Control{file: f}, f.Truncate(controlSize)
}

// Close closes the file. Libraries keep it open.
func (c *Control) Close() error { return c.file.Close() }

// Read returns a word.
func (c *Control) Read(word int) (uint64, error) { return c.readAt(int64(word) * 8) }

func (c *Control) readAt(at int64) (uint64, error) {
	var b [8]byte
	if _, err := c.file.ReadAt(b[:], at); err != nil {
		return 0, fmt.Errorf("read control file: %w", err)
	}
	return binary.NativeEndian.Uint64(b[:]), nil
}

// Write sets a word.
func (c *Control) Write(word int, value uint64) error {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], value)
	if _, err := c.file.WriteAt(b[:], int64(word)*8); err != nil {
		return fmt.Errorf("write control file: %w", err)
	}
	return nil
}

// Next adds one to a word.
func (c *Control) Next(word int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.Read(word)
	if err != nil {
		return err
	}
	return c.Write(word, n+1)
}

// Calls returns how often all processes have called the function at an index of functions.def.
func (c *Control) Calls(function int) (uint64, error) {
	return c.readAt(callsOffset + 8*int64(function))
}

// Message returns why a script could not be read; see Errors.
func (c *Control) Message() string { return c.text(messageOffset, textOffset) }

// Text returns the library's text; "" if there is none.
func (c *Control) Text() string { return c.text(textOffset, callsOffset) }

func (c *Control) text(from, to int64) string {
	b := make([]byte, to-from)
	n, _ := c.file.ReadAt(b, from)
	text, _, _ := strings.Cut(string(b[:n]), "\x00")
	return text
}

// Tell increments a word of the library that Copy put into a directory; Generation makes it read its script again.
func Tell(dir string, word int) error {
	f, err := os.OpenFile(filepath.Join(dir, script+controlSuffix), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join((&Control{file: f}).Next(word), f.Close())
}
