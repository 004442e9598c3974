// Package etc holds the counters files that come with the exporter, so that the binary runs without any file on disk.
// Images and packages install the files of this directory; users copy and change them.
package etc

import "embed"

//go:embed *.csv
var files embed.FS

// Default is the name of the default file.
const Default = "default-counters.csv"

// DefaultCounters returns the default counters CSV. The bytes are the caller's.
func DefaultCounters() []byte {
	b, err := files.ReadFile(Default)
	if err != nil {
		panic(err) // the file is part of the binary
	}
	return b
}

// Files returns all files by name.
func Files() embed.FS { return files }
