package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"warpgauge/pkg/field"
)

// The checked-in catalogue is what the generator writes today.
func TestCatalogueIsCurrent(t *testing.T) {
	want, err := generate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../zz_generated_catalogue.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("zz_generated_catalogue.go is not what its sources say: run go generate ./pkg/field")
	}
}

func TestExpand(t *testing.T) {
	f := func(in string, want ...int) {
		t.Helper()
		got, err := expand(in)
		if (err != nil) != (want == nil) {
			t.Fatalf("expand(%q): error %v", in, err)
		}
		if len(got) != len(want) {
			t.Fatalf("expand(%q) = %v, want %v", in, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("expand(%q) = %v, want %v", in, got, want)
			}
		}
	}
	f("5", 5)
	f("1-3,7", 1, 2, 3, 7)
	f("3-1")
	f("a")
	f("")
}

func TestCombineRefuses(t *testing.T) {
	one := map[int]fact{1: {kind: "Int64", level: "GPU", cost: "Slow"}}
	f := func(what string, byID map[int]*names, facts map[int]fact, units []baseUnit) {
		t.Helper()
		if _, err := combine(byID, facts, units); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	a := map[int]*names{1: {current: []string{"A"}}}
	f("a field without facts", map[int]*names{1: {current: []string{"A"}}, 2: {current: []string{"B"}}}, one, nil)
	f("facts without a field", map[int]*names{}, one, nil)
	f("a name twice", map[int]*names{1: {current: []string{"A"}}, 2: {current: []string{"A"}}},
		map[int]fact{1: one[1], 2: one[1]}, nil)
	f("a base unit of nothing", a, one, []baseUnit{{id: 3, name: "C", of: 9, factor: 1}})
	f("a base unit of a text", a, map[int]fact{1: {kind: "String"}}, []baseUnit{{id: 3, name: "C", of: 1, factor: 1}})
	f("a base unit with a taken name", map[int]*names{1: {current: []string{"A"}}}, one, []baseUnit{{id: 3, name: "A", of: 1, factor: 2}})
}

func TestFill(t *testing.T) {
	f := func(help, name, want string) {
		t.Helper()
		if got := fill(help, name, nil); got != want {
			t.Errorf("fill(%q, %q) = %q, want %q", help, name, got, want)
		}
	}
	f("NVLink {lane}", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L17", "NVLink 17")
	f("NVLink {lane}: {dir}", "DCGM_FI_PROF_NVLINK_L3_RX_BYTES", "NVLink 3: received")
	f("lane {lane}", "DCGM_FI_DEV_NVSWITCH_LINK_CRC_ERRORS_LANE5", "lane 5")
	f("decoder {n}", "DCGM_FI_PROF_NVDEC7_ACTIVE", "decoder 7")
	f("in {part}", "DCGM_FI_DEV_ECC_SBE_VOL_SHM", "in shared memory")
	f("run: {test}", "DCGM_FI_DEV_DIAG_PULSE_TEST_RESULT", "run: pulse test")
}

// Every name that go-dcgm knows, current, legacy and of DCGM 1.x, resolves to
// its id, or to what its id is a multiple of.
func TestEveryNameResolves(t *testing.T) {
	dir, _, err := findModule(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byID, err := readNames(filepath.Join(dir, "pkg", "dcgm"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for id, names := range byID {
		for _, name := range slices.Concat(names.current, names.legacy) {
			n++
			d, scale, ok := field.ByName(name)
			switch {
			case !ok:
				t.Errorf("%q (%d) does not resolve", name, id)
			case int(d.ID) != id && scale == 1:
				t.Errorf("%q is %d, want %d", name, d.ID, id)
			}
		}
		if _, ok := field.ByID(field.ID(id)); !ok {
			t.Errorf("id %d (%v) is not in the catalogue", id, names.current)
		}
	}
	if n < 1000 {
		t.Errorf("only %d names read", n)
	}
}
