package simulated

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
)

// Copy is a scripted library in its own place, with its script and its control file next to it.
type Copy struct {
	Path    string // the library's file
	Control *Control
	script  string
	mu      sync.Mutex // serialises Write
}

// Copy copies a build into a directory and replaces an earlier copy; a process that has loaded the earlier one keeps
// it. The copy has no script yet.
func (l *Library) Copy(dir, built string) (*Copy, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	c := &Copy{Path: filepath.Join(dir, l.File), script: filepath.Join(dir, script)}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(c.Path); err != nil {
		return nil, err
	}
	if err := c.Share(c.Path, built); err != nil {
		return nil, err
	}
	c.Control, err = newControl(c.script + controlSuffix)
	return c, err
}

// Share copies a build, of this library or of another, to a path, and makes it read this copy's script.
func (c *Copy) Share(path, built string) error {
	text, err := os.ReadFile(built)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(path, text, 0o600), //nolint:gosec // the caller's path
		os.WriteFile(path+".node", []byte(c.script+"\n"), 0o600),
	)
}

// Write replaces the script atomically, so that no call reads half of it, and makes the library read it.
func (c *Copy) Write(text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := c.script + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return err
	}
	if err := os.Rename(next, c.script); err != nil {
		return err
	}
	return c.Control.Next(Generation)
}
