// Package etc holds the counters files that come with the exporter, so that the
// binary runs without any file on disk. The files are in this directory and are
// what an image or package installs; users copy and change them.
package etc

import (
	"embed"
	"fmt"
	"io/fs"
)

//go:embed *.csv
var files embed.FS

// Default is the name of the file that is used unless another is named.
const Default = "default-counters.csv"

// DefaultCounters returns the default counters CSV. The bytes are the caller's.
func DefaultCounters() []byte {
	b, err := files.ReadFile(Default)
	if err != nil {
		panic(err) // the file is part of the binary
	}
	return b
}

// File returns one of the files by its name without a folder. The error wraps
// fs.ErrNotExist for any other name. The bytes are the caller's.
func File(name string) ([]byte, error) {
	b, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read built-in counters file %q: %w", name, err)
	}
	return b, nil
}

// Names returns the names of all files in alphabetical order.
func Names() []string {
	names, err := fs.Glob(files, "*.csv")
	if err != nil {
		panic(err) // the pattern is good
	}
	return names
}
