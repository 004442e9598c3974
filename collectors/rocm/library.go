package rocm

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"warpgauge/collectors/internal/dl"
	"warpgauge/pkg/collector"
)

// notLoaded returns the error for a library that cannot be loaded or used.
func notLoaded(what string, names []string, err error) error {
	var oe *dl.OpenError
	switch {
	case errors.As(err, &oe) && oe.Absent():
		return fmt.Errorf("load %s: %w: the loader finds no %s", what, collector.ErrNotLoaded, strings.Join(names, ", "))
	case errors.Is(err, dl.ErrUnavailable):
		return fmt.Errorf("load %s: %w: %w", what, collector.ErrNotBuiltIn, err)
	}
	return fmt.Errorf("load %s: %w: unusable library: %w", what, collector.ErrNotLoaded, err)
}

// libraryNames returns the names to try: only named if it is set; else the sonames, then the files in AMD's
// directories, which the loader often does not search. dir is the parent of the releases ("/opt"), folders are
// subdirectories of a release.
func libraryNames(named, dir string, sonames []string, folders ...string) []string {
	if named != "" {
		return []string{named}
	}
	names := slices.Clone(sonames)
	for _, release := range releases(dir) {
		for _, folder := range folders {
			for _, s := range sonames {
				// Trying every absent name would bury the important loader error.
				if found, err := filepath.Glob(filepath.Join(release, folder, s)); err == nil {
					names = append(names, found...)
				}
			}
		}
	}
	return names
}

// releases returns the directories of installed releases: the administrator's choice first, then the others, newest
// first. From 7.11 on they are /opt/rocm/core-*.
func releases(dir string) []string {
	var found []string
	for _, pattern := range []string{"rocm-*", "rocm/core-*"} {
		if more, err := filepath.Glob(filepath.Join(dir, pattern)); err == nil {
			found = append(found, more...)
		}
	}
	slices.SortFunc(found, func(a, b string) int {
		return -cmp.Or(slices.Compare(numbers(filepath.Base(a)), numbers(filepath.Base(b))), strings.Compare(a, b))
	})
	return append([]string{filepath.Join(dir, "rocm"), filepath.Join(dir, "rocm/core")}, found...)
}

// numbers returns the numbers in a name: 6, 2, 4 for "rocm-6.2.4".
func numbers(name string) []int {
	var n []int
	for _, s := range strings.FieldsFunc(name, func(r rune) bool { return r < '0' || r > '9' }) {
		if v, err := strconv.Atoi(s); err == nil {
			n = append(n, v)
		}
	}
	return n
}
