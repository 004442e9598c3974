package nvmltest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"warpgauge/collectors/internal/simulated"
)

// library is this process's copy of a build, in its own directory.
type library struct {
	driver string
	built  string // the file that it is a copy of
	*simulated.Copy
}

// install makes this process's copy. It stays for the life of the process, which may be bound to it; the next process
// removes it.
func install(driver, built string) (*library, error) {
	base, err := simulated.Directory()
	if err != nil {
		return nil, err
	}
	sweep(base)
	dir, err := os.MkdirTemp(base, fmt.Sprintf("run-%d-", os.Getpid()))
	if err != nil {
		return nil, err
	}
	c, err := simulation().Copy(dir, built)
	return &library{driver, built, c}, err
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
