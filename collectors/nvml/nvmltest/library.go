package nvmltest

import (
	"embed"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"warpgauge/collectors/internal/simulated"
)

//go:embed lib/*
var sources embed.FS

// Words of our own in the control file. lib/fake.h has the same list.
const (
	wordInits = simulated.FirstOwn + iota // initialisations in force, counted as NVML does, of all processes
	wordFiles                             // devices that it holds open
	wordEventSets
	wordSamples // of GPM
)

// simulation is the library's code.
var simulation = sync.OnceValue(func() *simulated.Library {
	lib, err := fs.Sub(sources, "lib")
	if err != nil {
		panic(err) // it is embedded
	}
	return &simulated.Library{
		Name: "NVML", File: "libnvidia-ml.so.1", Scripted: true, Sources: lib, Headers: header(),
		Compile: []string{"-Wno-deprecated-declarations"}, Link: []string{"-lm"},
	}
})

// functions are those of lib/functions.def, by the first driver branch that has them.
var functions = sync.OnceValue(func() []simulated.Function { return simulation().Functions() })

// Options of a build of the library.
type Options struct {
	// Driver is a branch or a version, as in Config; "" means "580".
	Driver string
	// Without are symbols to leave out, beyond those that the driver lacks.
	Without []string
}

// build compiles the library and returns its file.
func (o Options) build() (string, error) {
	branch, err := driverBranch(o.Driver)
	if err != nil {
		return "", err
	}
	symbols, err := simulation().Symbols(branch, o.Without)
	if err != nil {
		return "", err
	}
	return simulation().Build(symbols)
}

// wrapped is how go-nvml's copy of nvml.h declares handles: in a struct, which is
// passed as the pointer in it would be. NVIDIA's own has the pointer.
var wrapped = regexp.MustCompile(`typedef struct\s*\{\s*struct (\w+)\s*\*\s*handle;\s*\}\s*(\w+);`)

// header returns what reads go-nvml's nvml.h, once.
func header() func() (map[string][]byte, error) {
	return sync.OnceValues(func() (map[string][]byte, error) {
		dir, err := simulated.ModuleFolder("github.com/NVIDIA/go-nvml", "pkg/nvml")
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(filepath.Join(dir, "nvml.h"))
		return map[string][]byte{"nvml.h": wrapped.ReplaceAll(text, []byte("typedef struct $1 *$2;"))}, err
	})
}
