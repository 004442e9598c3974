package rocm

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// smiSonames are the names of the library, in order of preference. AMD's
// packages number it 5, 6 and, from ROCm 6.1 on, 7; distributions and builds
// without version tags say 1. The number tells nothing about the layouts.
func smiSonames() []string {
	return []string{
		"librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5",
		"librocm_smi64.so.1", "librocm_smi64.so",
	}
}

// smiNames are the names to give to the loader: what the user named, and nothing
// else, or the sonames, and then what lies in AMD's directories, which the loader
// often does not know. dir is where those are: "/opt".
func smiNames(named, dir string) []string {
	if named != "" {
		return []string{named}
	}
	names := smiSonames()
	for _, d := range smiDirectories(dir) {
		for _, s := range smiSonames() {
			// A loader's complaint about every absent name would bury the one that matters.
			if found, err := filepath.Glob(filepath.Join(d, s)); err == nil {
				names = append(names, found...)
			}
		}
	}
	return names
}

// smiDirectories are those of the installed releases: the one that the system
// administrator chose, then the others, newest first.
func smiDirectories(dir string) []string {
	releases, err := filepath.Glob(filepath.Join(dir, "rocm-*"))
	if err != nil {
		return nil
	}
	slices.SortFunc(releases, func(a, b string) int {
		return -cmp.Or(slices.Compare(numbers(filepath.Base(a)), numbers(filepath.Base(b))), strings.Compare(a, b))
	})
	var dirs []string
	for _, r := range append([]string{filepath.Join(dir, "rocm")}, releases...) {
		dirs = append(dirs, filepath.Join(r, "lib"), filepath.Join(r, "lib64"))
	}
	return dirs
}

// numbers are the numbers of a name: 6, 2, 4 of "rocm-6.2.4".
func numbers(name string) []int {
	var n []int
	for _, s := range strings.FieldsFunc(name, func(r rune) bool { return r < '0' || r > '9' }) {
		if v, err := strconv.Atoi(s); err == nil {
			n = append(n, v)
		}
	}
	return n
}
