// Package etc holds the counters files that come with the exporter, so that the
// binary runs without any file on disk. The files are in this directory and are
// what an image or package installs; users copy and change them.
package etc

import "embed"

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

// Files are all of them, by name.
func Files() embed.FS { return files }
