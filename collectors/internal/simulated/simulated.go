// Package simulated is what the simulated libraries of NVML, DCGM, ROCm SMI and CUDA
// share: how they are compiled when a test needs them and kept for the next test, and
// how a Go program sets the answers of one that is loaded, in whatever process.
//
// A simulated library with a script reads it: a text of lines. It finds the
// script through a file next to it, NAME.node; next to the script is a file
// of 64-bit words, SCRIPT.control, which the library maps. A word that changes makes
// it read the script again at its next call; in others it reports what is done with it.
// lib holds the C side of that, which each library is compiled with.
//
// Nothing here runs in production.
package simulated

import (
	"embed"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

//go:embed lib
var shared embed.FS

// Library is a shared library to be compiled with cc, from C11.
type Library struct {
	// Name is what it simulates, as messages have it: "NVML".
	Name string
	// File is its file's name and its soname.
	File string
	// Sources are the C files and what they include, all in one directory.
	Sources fs.FS
	// Scripted adds what reads a script and keeps the control file: lib/simulated.h
	// says what the sources must define. Functions are those of "functions.def".
	Scripted bool
	// Headers returns the vendor's headers, by name; nil means none.
	Headers func() (map[string][]byte, error)
	// Compile and Link are flags beyond those that all have.
	Compile, Link []string
}

// compile returns the flags with which each file is compiled.
func (l *Library) compile() []string {
	flags := []string{
		"-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-pthread",
		"-isystem", headers, `-DSIMULATED="` + l.Name + `"`,
	}
	return append(flags, l.Compile...)
}

// link returns the flags that follow the object files.
func (l *Library) link() []string {
	return append([]string{"-shared", "-pthread", "-Wl,-soname," + l.File, "-ldl"}, l.Link...)
}

// Directory is where builds are kept, one per user. What else a test keeps next to
// them has a name with a dash.
func Directory() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	dir := filepath.Join(base, "warpgauge-simulated-"+strconv.Itoa(os.Getuid()))
	return dir, os.MkdirAll(dir, 0o700)
}
