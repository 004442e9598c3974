// Package probe looks for what the collector of a vendor needs, a shared
// library and a kernel driver, and says in one line what it found, where it
// looked and what to do. It opens a library only to see whether that works and
// closes it again. No state, no goroutines.
package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/dl"
)

// Probe is one vendor library and the driver below it.
type Probe struct {
	API       string   // what values would be read through: "NVML"
	Libraries []string // names to try, in order
	Driver    Driver
	Advice    Advice
	// Find says which file the loader takes for the names; nil means dl.Find.
	Find func(names []string) (path string, err error)
}

// Advice is what to do about the part that lacks.
type Advice struct{ Nothing, NoLibrary, NoDriver string }

// Open looks and answers an error always: collector.ErrNotLoaded where library
// or driver lacks, collector.ErrNotBuiltIn where this binary could not use them.
func (p Probe) Open(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("look for %s: %w", p.API, err)
	}
	find := p.Find
	if find == nil {
		find = dl.Find
	}
	path, err := find(p.Libraries)
	err = p.verdict(path, err)
	return fmt.Errorf("look for %s: %w", p.API, err)
}

func (p Probe) verdict(path string, err error) error {
	lib := libraryText(p.Libraries, path, err)
	switch {
	case errors.Is(err, dl.ErrUnavailable):
		return fmt.Errorf("%w: it needs %s, and a binary built without cgo loads no libraries; %s; use a binary built with CGO_ENABLED=1",
			collector.ErrNotBuiltIn, strings.Join(p.Libraries, " or "), p.Driver.Text)
	case err != nil && p.Driver.Loaded:
		return notLoaded(lib, p.Driver.Text, p.Advice.NoLibrary)
	case err != nil:
		return notLoaded(lib, p.Driver.Text, p.Advice.Nothing)
	case !p.Driver.Loaded:
		return notLoaded(lib, p.Driver.Text, p.Advice.NoDriver)
	default:
		return fmt.Errorf("%w: sampling through %s is not part of this build; %s; %s",
			collector.ErrNotBuiltIn, p.API, lib, p.Driver.Text)
	}
}

func notLoaded(lib, driver, advice string) error {
	return fmt.Errorf("%w: %s; %s; %s", collector.ErrNotLoaded, lib, driver, advice)
}

func libraryText(names []string, path string, err error) string {
	if err == nil {
		return "library " + path
	}
	var oe *dl.OpenError
	if errors.As(err, &oe) && oe.Absent() {
		return "the loader finds no " + strings.Join(names, ", ")
	}
	return "unusable library: " + err.Error()
}
