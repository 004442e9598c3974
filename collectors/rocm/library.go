package rocm

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/dl"
)

// notLoaded is the error if none of the names can be loaded, or what is loaded cannot be used.
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

// libraryNames are the names to give to the loader: what the user named, and nothing
// else, or the sonames, and then the files in AMD's directories, which the loader
// often does not know. dir is the parent of these, "/opt"; folders are those of a release.
func libraryNames(named, dir string, sonames []string, folders ...string) []string {
	if named != "" {
		return []string{named}
	}
	names := slices.Clone(sonames)
	for _, release := range releases(dir) {
		for _, folder := range folders {
			for _, s := range sonames {
				// A loader's complaint about every absent name would bury the one that matters.
				if found, err := filepath.Glob(filepath.Join(release, folder, s)); err == nil {
					names = append(names, found...)
				}
			}
		}
	}
	return names
}

// releases are the directories of the installed releases: the one that the system
// administrator chose, then the others, newest first. From 7.11 on they are /opt/rocm/core-*.
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
