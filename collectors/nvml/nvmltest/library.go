package nvmltest

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"warpgauge/collectors/internal/simulated"
)

//go:embed lib/*
var sources embed.FS

// This library's words in the control file. lib/fake.h has the same list.
const (
	wordInits = simulated.FirstOwn + iota // initialisations minus shutdowns, as NVML counts them, of all processes
	wordFiles                             // open devices
	wordEventSets
	wordSamples // GPM samples
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

// functions returns the functions of lib/functions.def with the first driver branch that has each.
var functions = sync.OnceValue(func() []simulated.Function { return simulation().Functions() })

// wrapped matches go-nvml's declaration of handles in nvml.h: a struct, which is passed like the pointer in it.
// NVIDIA's own header declares the pointer.
var wrapped = regexp.MustCompile(`typedef struct\s*\{\s*struct (\w+)\s*\*\s*handle;\s*\}\s*(\w+);`)

// header returns go-nvml's nvml.h, read once.
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

// library is this process's copy of a build, in its own directory.
type library struct {
	driver string
	built  string // the build's file
	*simulated.Copy
}

// install makes this process's copy. It stays for the life of the process, which may be bound to it; the next process
// removes it.
func install(driver, built string) (*library, error) {
	base, err := simulated.Directory()
	if err != nil {
		return nil, err
	}
	sweep(base)
	dir, err := os.MkdirTemp(base, fmt.Sprintf("run-%d-", os.Getpid()))
	if err != nil {
		return nil, err
	}
	c, err := simulation().Copy(dir, built)
	return &library{driver, built, c}, err
}

// sweep removes the copies of processes that have ended.
func sweep(base string) {
	runs, _ := filepath.Glob(filepath.Join(base, "run-*")) // the pattern is valid
	for _, dir := range runs {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), "run-"), "-")
		if _, err := strconv.Atoi(pid); err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join("/proc", pid)); os.IsNotExist(err) {
			_ = os.RemoveAll(dir)
		}
	}
}
