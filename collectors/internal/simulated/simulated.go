// Package simulated is the shared part of the simulated libraries of NVML, DCGM and ROCm SMI: it compiles them when a test
// needs them, caches them for the next test, and lets a Go program set the answers of a loaded one, in any process.
//
// A simulated library may have a script, a text of lines. It finds the script through a file next to it, NAME.node;
// next to the script is a file of 64-bit words, SCRIPT.control, which the library maps. A change of one word makes the
// library read the script again at its next call; in other words the library counts its use. lib holds the C side,
// which is compiled into each library.
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

// Library describes a shared library that cc compiles as C11.
type Library struct {
	// Name is the simulated library's name in messages: "NVML".
	Name string
	// File is its file's name and its soname.
	File string
	// Sources holds the C files and the files that they include, in one directory.
	Sources fs.FS
	// Scripted adds the code that reads a script and keeps the control file: lib/simulated.h lists the definitions that
	// the sources must have. "functions.def" lists the functions.
	Scripted bool
	// Headers returns the vendor's headers, by name; nil means none.
	Headers func() (map[string][]byte, error)
	// Compile and Link are additional flags.
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

// Directory returns where builds are cached, one per user. Other files there have a dash in their names.
func Directory() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	dir := filepath.Join(base, "warpgauge-simulated-"+strconv.Itoa(os.Getuid()))
	return dir, os.MkdirAll(dir, 0o700)
}
