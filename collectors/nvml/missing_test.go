//go:build linux && cgo

package nvml

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// everything returns a list of all fields.
func everything(t *testing.T) field.List {
	t.Helper()
	var csv strings.Builder
	for _, d := range field.All() {
		kind := "gauge"
		if d.Kind == field.String {
			kind = "label"
		}
		csv.WriteString(d.Name + ", " + kind + ", all of them\n")
	}
	return listOf(t, csv.String())
}

// exercise makes every call on a collector that a sampler makes.
func exercise(t *testing.T, o Options, list field.List) error {
	t.Helper()
	c := New(o)
	sources, err := c.Open(t.Context(), list)
	if err != nil {
		return err
	}
	for range 3 {
		for i, row := range sampleAll(t, sources) {
			testkit.ErrorIf(t, !slices.ContainsFunc(row, func(v float64) bool { return v == v }), "source %d has no value at all", i)
		}
		for _, s := range sources {
			if m, ok := s.(collector.CallMeter); ok {
				m.Calls()
			}
		}
		time.Sleep(5 * time.Millisecond) // GPM needs time between samples
	}
	if changed, err := c.Rescan(t.Context()); changed || err != nil {
		t.Errorf("Rescan = %v, %v", changed, err)
	}
	return c.Close()
}

// TestDrivers goes from the oldest supported driver to the newest, with GPUs of each architecture. A missing function
// must only cost the fields that need it.
func TestDrivers(t *testing.T) {
	for _, driver := range []string{"470", "510", "515", "525", "535", "545", "550", "560", "570", "575", "580", "590", "610"} {
		t.Run(driver, func(t *testing.T) {
			if nvmltest.OwnProcess(t) {
				return
			}
			presets, asked := []string{"h100-mig", "rtx4090"}, namedSymbols(t)
			if driver == "470" || driver == "610" {
				presets = nvmltest.Presets()
			}
			for _, preset := range presets {
				n := nvmltest.New(t, nvmltest.Config{Preset: preset, Driver: driver})
				err := exercise(t, at(n), everything(t))
				testkit.ErrorIf(t, err != nil, "%s: %v", preset, err)
				mustHold(t, n, false)
				for f := range n.AllCalls() { // go-nvml ends the process at a missing function
					testkit.ErrorIf(t, !slices.Contains(asked, f), "%s: %s is called and not looked up", preset, f)
				}
				must(t, n.Close())
			}
		})
	}
}

// TestEachMissingSymbol removes each NVML function in the source from the library, one at a time, even those that
// every driver has. A call of a missing function would end the process in go-nvml.
func TestEachMissingSymbol(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process for each function of NVML")
	}
	if testkit.Race {
		t.Skip("what the loader does is the same without the race detector, and what is called is what TestDrivers calls")
	}
	for _, symbol := range namedSymbols(t) {
		t.Run(symbol, func(t *testing.T) {
			if nvmltest.OwnProcess(t) {
				return
			}
			n := nvmltest.New(t, nvmltest.Config{Preset: "h100-mig", GPUs: 2, Driver: "610"})
			o := at(n)
			o.Library = n.Install(filepath.Join(t.TempDir(), soname))
			cut(t, o.Library, symbol)
			err := exercise(t, o, everything(t))
			switch {
			case !slices.Contains(required[:], symbol):
				testkit.ErrorIf(t, err != nil, "%v", err)
			case !errors.Is(err, collector.ErrNotLoaded) || !strings.Contains(err.Error(), "it lacks "+symbol):
				t.Errorf("got %v, want %v", err, collector.ErrNotLoaded)
			}
			mustHold(t, n, false)
		})
	}
}

// namedSymbols returns the NVML functions that this package's source names.
func namedSymbols(t *testing.T) (out []string) {
	t.Helper()
	names := testkit.Get(filepath.Glob("*.go"))(t)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text := testkit.Get(os.ReadFile(name))(t)
		for _, m := range regexp.MustCompile(`"(nvml[A-Z]\w*)"`).FindAllSubmatch(text, -1) {
			out = append(out, string(m[1]))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// cut renames a symbol in a library's name table, where it stands once, so that a lookup fails.
func cut(t *testing.T, path, symbol string) {
	t.Helper()
	text := testkit.Get(os.ReadFile(path))(t)
	name := []byte("\x00" + symbol + "\x00")
	if !bytes.Contains(text, name) {
		t.Skipf("the simulated library has no %s", symbol)
	}
	must(t, os.WriteFile(path, bytes.ReplaceAll(text, name, []byte("\x00x"+symbol[1:]+"\x00")), 0o600))
}
