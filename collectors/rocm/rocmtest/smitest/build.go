package smitest

import (
	"embed"
	"io/fs"
	"strconv"
	"testing"

	"warpgauge/collectors/internal/simulated"
	"warpgauge/internal/testkit/programtest"
)

//go:embed fake
var source embed.FS

// ABI is a generation of symbols and layouts.
type ABI int

// Generations of the fake.
const (
	ROCm5 ABI = 52 // 5.0 to 5.7: no rsmi_dev_power_get
	ROCm6 ABI = 62
	ROCm7 ABI = 78
)

// Built is a compiled fake. Tests use copies of it.
type Built struct{ file string }

// AMDSMI is a release of AMD SMI with its own structures: ROCm 6.1, 6.2, 6.3, 6.4, and 7.1 to 10.1.
type AMDSMI int

// AMDSMIReleases returns all releases.
func AMDSMIReleases() []AMDSMI { return []AMDSMI{2405, 2406, 2407, 2502, 2601} }

// CompileAMD builds the fake of AMD SMI with the C compiler.
func CompileAMD(tb testing.TB, release AMDSMI) Built {
	tb.Helper()
	return build(tb, &simulated.Library{
		Name: "AMD SMI", File: "libamd_smi.so", Compile: []string{"-DAMDSMI=" + strconv.Itoa(int(release))},
		Link: []string{"-Wl,-soname,libamd_smi-simulated.so"},
	})
}

// Compile builds the fake of ROCm SMI with the C compiler.
func Compile(tb testing.TB, abi ABI) Built {
	tb.Helper()
	return build(tb, &simulated.Library{
		Name: "ROCm SMI", File: "librocm_smi64.so.1", Compile: []string{"-DABI=" + strconv.Itoa(int(abi))},
		// The loader must not return a loaded fake for the soname of the installed library.
		Link: []string{"-Wl,-soname,librocm_smi64-simulated.so"},
	})
}

func build(tb testing.TB, lib *simulated.Library) Built {
	tb.Helper()
	programtest.Find(tb, "cc")
	sources, err := fs.Sub(source, "fake")
	must(tb, err)
	lib.Sources = sources
	file, err := lib.Build(nil)
	must(tb, err)
	return Built{file: file}
}
