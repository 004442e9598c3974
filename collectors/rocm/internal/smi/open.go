package smi

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"warpgauge/collectors/internal/dl"
)

// ErrNotBuiltIn means that this binary cannot load libraries.
var ErrNotBuiltIn = dl.ErrUnavailable

// Open loads the library with the file name or soname named. If named is "", it loads the first existing library. It
// calls no function. Errors: ErrNotBuiltIn, wrapped, or that no library can be used.
func Open(api *API, named string) (*Caller, error) {
	names := api.names(named, "/opt")
	l, err := load(names, api)
	var oe *dl.OpenError
	switch {
	case err == nil:
		return l.NewCaller(), nil
	case errors.As(err, &oe) && oe.Absent():
		return nil, fmt.Errorf("load %s: the loader finds no %s", api.Name, strings.Join(names, ", "))
	case errors.Is(err, ErrNotBuiltIn):
		return nil, fmt.Errorf("load %s: %w", api.Name, err)
	}
	return nil, fmt.Errorf("load %s: unusable library: %w", api.Name, err)
}

// names returns the names to try: only named if it is set, or else the sonames, then the files in AMD's directories,
// which the loader often does not search. dir is the parent of the releases.
func (a *API) names(named, dir string) []string {
	if named != "" {
		return []string{named}
	}
	names := slices.Clone(a.Sonames)
	for _, release := range releases(dir) {
		for _, folder := range a.Folders {
			for _, s := range a.Sonames {
				// Errors for every absent name would hide the important loader error.
				if found, err := filepath.Glob(filepath.Join(release, folder, s)); err == nil {
					names = append(names, found...)
				}
			}
		}
	}
	return names
}

// releases returns the directories of installed releases: the administrator's choice first, then the others, newest
// first. Releases since 7.11 are in /opt/rocm/core-*.
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
