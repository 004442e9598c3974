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

// What the fake can be.
const (
	ROCm5 ABI = 52 // 5.0 to 5.7: no rsmi_dev_power_get
	ROCm6 ABI = 62
	ROCm7 ABI = 78
)

// Built is a compiled fake, of which tests take copies.
type Built struct{ file string }

// Compile builds the fake with the C compiler, which it needs. With asserts it
// imports what aborts a process, as Debian's build of the real one does.
func Compile(tb testing.TB, abi ABI, asserts bool) Built {
	tb.Helper()
	programtest.Find(tb, "cc")
	sources, err := fs.Sub(source, "fake")
	if err != nil {
		tb.Fatal(err)
	}
	lib := simulated.Library{
		Name: "ROCm SMI", File: "librocm_smi64.so.1", Sources: sources,
		Compile: []string{"-DABI=" + strconv.Itoa(int(abi))},
		// Who asks for the installed one by its soname must not get a fake that is loaded.
		Link: []string{"-Wl,-soname,librocm_smi64-simulated.so"},
	}
	if asserts {
		lib.Compile = append(lib.Compile, "-DASSERTS")
	}
	file, err := lib.Build(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return Built{file: file}
}
