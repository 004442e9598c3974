//go:build linux && cgo

package dcgmtest_test

import (
	"debug/elf"
	"slices"
	"strings"
	"testing"

	"warpgauge/collectors/dcgm"
	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/pkg/field"
)

// TestFunctions: a library has what its version has, and nothing of our own.
func TestFunctions(t *testing.T) {
	for _, c := range []struct {
		dcgmtest.Config
		lacks []string
	}{
		{},
		{dcgmtest.Config{Version: "4.4.1"}, []string{"dcgmConnect_v3"}},
		{dcgmtest.Config{Library: "4.2.0", Without: []string{"dcgmHealthCheck"}}, []string{"dcgmConnect_v3", "dcgmHealthCheck"}},
	} {
		f, err := elf.Open(dcgmtest.New(t, c.Config).Library())
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := f.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range symbols {
			if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
				names = append(names, s.Name)
			}
		}
		if !slices.Contains(names, "dcgmInit") || slices.ContainsFunc(names, func(n string) bool { return !strings.HasPrefix(n, "dcgm") && n != "errorString" }) {
			t.Errorf("%+v: exports %v", c.Config, names)
		}
		for _, n := range []string{"dcgmConnect_v3", "dcgmHealthCheck"} {
			if slices.Contains(names, n) == slices.Contains(c.lacks, n) {
				t.Errorf("%+v: %s is there: %v", c.Config, n, slices.Contains(names, n))
			}
		}
	}
}

// TestMistakes: what cannot be is refused, and a script that is not what its test wrote is reported.
func TestMistakes(t *testing.T) {
	for name, c := range map[string]dcgmtest.Config{
		"preset":   {Preset: "dgx-2"},
		"version":  {Version: "four"},
		"function": {Without: []string{"dcgmFly"}},
	} {
		if _, err := dcgmtest.Write(t.TempDir(), c, func(err error) { t.Fatal(err) }); err == nil {
			t.Errorf("a wrong %s was taken", name)
		}
	}
	var said error
	e, err := dcgmtest.Write(t.TempDir(), dcgmtest.Config{Preset: "empty"}, func(err error) { said = err })
	if err != nil {
		t.Fatal(err)
	}
	if e.SetLink(dcgmtest.GPU(0), 3, dcgmtest.LinkUp); said == nil {
		t.Error("a link of a GPU that does not exist was changed")
	}
	e = dcgmtest.New(t, dcgmtest.Config{Lines: []string{"value 1 0 150 num warm"}})
	if _, err := dcgm.New(dcgm.Options{Library: e.Library(), Engine: "localhost"}).Open(t.Context(), field.List{}); err == nil {
		t.Error("an engine without a script was opened")
	}
	if err := e.Trouble(); err == nil || !strings.Contains(err.Error(), "cannot read value 1 0 150 num warm") {
		t.Errorf("got %v", err)
	}
}
