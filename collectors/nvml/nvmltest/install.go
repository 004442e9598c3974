package nvmltest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// library is the copy of a build that this process uses: a directory of its own
// with library, script and control file.
type library struct {
	options Options
	variant string
	path    string
	script  string
	control *control
}

// install makes this process's copy. It stays for the life of the process, which
// may be bound to it; the next process removes it.
func install(o Options) (*library, error) {
	v, err := o.variant()
	if err != nil {
		return nil, err
	}
	built, err := compile(o)
	if err != nil {
		return nil, err
	}
	base, err := cacheDir()
	if err != nil {
		return nil, err
	}
	sweep(base)
	dir, err := os.MkdirTemp(base, fmt.Sprintf("run-%d-", os.Getpid()))
	if err != nil {
		return nil, err
	}
	return installIn(dir, built, v, o)
}

// installIn puts a copy with its script and control file into a directory.
func installIn(dir, built, v string, o Options) (l *library, err error) {
	l = &library{options: o, variant: v, path: filepath.Join(dir, soname), script: filepath.Join(dir, "script")}
	if err := copyFile(l.path, built); err != nil {
		return nil, err
	}
	if err := os.WriteFile(l.path+".node", []byte(l.script+"\n"), 0o600); err != nil {
		return nil, err
	}
	l.control, err = newControl(l.script + ".control")
	return l, err
}

// sweep removes the copies of processes that have ended.
func sweep(base string) {
	runs, err := filepath.Glob(filepath.Join(base, "run-*"))
	if err != nil {
		return
	}
	for _, dir := range runs {
		text, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), "run-"), "-")
		pid, err := strconv.Atoi(text)
		if err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid))); os.IsNotExist(err) {
			_ = os.RemoveAll(dir)
		}
	}
}
