//go:build linux && cgo

package dcgmtest_test

import (
	"debug/elf"
	"slices"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
)

// exports are the functions that a library offers.
func exports(t *testing.T, path string) (names []string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			names = append(names, s.Name)
		}
	}
	soname, err := f.DynString(elf.DT_SONAME)
	if err != nil || !slices.Equal(soname, []string{"libdcgm.so.4"}) {
		t.Errorf("soname %q, %v", soname, err)
	}
	slices.Sort(names)
	return names
}

// TestFunctions: a library has what its version has, and nothing of our own.
func TestFunctions(t *testing.T) {
	f := func(c dcgmtest.Config, lacks ...string) {
		t.Helper()
		want := slices.DeleteFunc(dcgmtest.Functions(), func(n string) bool { return slices.Contains(lacks, n) })
		slices.Sort(want)
		if got := exports(t, dcgmtest.New(t, c).Library()); !slices.Equal(got, want) {
			t.Errorf("%+v: got %v, want %v", c, got, want)
		}
	}
	f(dcgmtest.Config{})
	f(dcgmtest.Config{Version: "4.4.1"}, "dcgmConnect_v3")
	f(dcgmtest.Config{Library: "4.2.0", Without: []string{"dcgmHealthCheck"}}, "dcgmConnect_v3", "dcgmHealthCheck")
}

// TestMistakes: what cannot be is refused.
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
	if e.Return("dcgmFly", -1); said == nil {
		t.Error("a fault of a function that does not exist was taken")
	}
	said = nil
	if e.SetLink(dcgmtest.GPU(0), 3, dcgmtest.LinkUp); said == nil {
		t.Error("a link of a GPU that does not exist was changed")
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
