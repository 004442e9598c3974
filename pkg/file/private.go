package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Private is a directory for this process's own files: other users cannot place files or links there.
type Private struct {
	Path string
	Of   string // names its content in messages: "lists"
	Flag string // the flag that names it: "remote-directory"
}

// temporary begins the name of an incomplete file.
const temporary = "."

// Open opens the directory and creates it if needed.
func (p Private) Open() (*os.Root, error) {
	if err := os.MkdirAll(p.Path, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of %s (--%s): %w", p.Of, p.Flag, err)
	}
	link, err := os.Lstat(p.Path)
	if err != nil {
		return nil, fmt.Errorf("examine the directory of %s: %w", p.Of, err)
	}
	if uid := ownerOf(link); uid != os.Geteuid() && (uid != 0 || link.IsDir()) { // systemd creates links to its directories
		return nil, p.foreign(uid)
	}
	root, err := os.OpenRoot(p.Path)
	if err != nil {
		return nil, fmt.Errorf("open the directory of %s: %w", p.Of, err)
	}
	info, err := root.Stat(".")
	switch {
	case err != nil:
		err = fmt.Errorf("examine the directory of %s: %w", p.Of, err)
	case ownerOf(info) != os.Geteuid():
		err = p.foreign(ownerOf(info))
	case info.Mode()&0o022 != 0:
		err = fmt.Errorf("other users can write to the directory of %s %q (%v): name a subdirectory with --%s, which is created", p.Of, p.Path, info.Mode(), p.Flag)
	}
	if err != nil {
		_ = root.Close() // nothing was written
		return nil, err
	}
	return root, nil
}

func (p Private) foreign(uid int) error {
	return fmt.Errorf("the directory of %s %q belongs to user %d, not to %d: name another with --%s", p.Of, p.Path, uid, os.Geteuid(), p.Flag)
}

// Read returns a file in the directory with at most limit bytes; nil if there is none.
func (p Private) Read(name string, limit int64) ([]byte, error) {
	root, err := p.Open()
	if err != nil {
		return nil, err
	}
	text, err := ReadIn(root, name, limit)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return text, errors.Join(err, root.Close())
}

// Write replaces a file in the directory as WriteWhole does, and removes incomplete files of a killed process. Only one
// program may write the file.
func (p Private) Write(name string, text []byte) error {
	root, err := p.Open()
	if err != nil {
		return err
	}
	if err = root.Remove(temporary + name); err == nil || errors.Is(err, fs.ErrNotExist) {
		err = WriteWhole(root, name, func(w io.Writer) error { _, err := w.Write(text); return err })
	}
	return errors.Join(err, root.Close())
}

// WriteWhole writes a file in the directory atomically: whenever the process or the machine stops, the file is complete
// or does not exist.
func WriteWhole(root *os.Root, name string, write func(io.Writer) error) error {
	f, err := root.OpenFile(temporary+name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync() // otherwise the name could be on disk before the content
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temporary+name, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(temporary+name))
	}
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// List returns the regular files in the directory whose names begin with prefix, by name. It removes incomplete files
// of a killed process that were last written before the given time.
func List(root *os.Root, prefix string, unfinished time.Time) (out []fs.FileInfo, err error) {
	all, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		name, partial := strings.CutPrefix(f.Name(), temporary)
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		info, e := f.Info()
		switch {
		case e != nil || !info.Mode().IsRegular(): // removed in the meantime
		case !partial:
			out = append(out, info)
		case info.ModTime().Before(unfinished):
			err = errors.Join(err, root.Remove(f.Name()))
		}
	}
	return out, err
}
