package dcgmtest

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"warpgauge/collectors/internal/simulated"
)

//go:embed lib/*
var sources embed.FS

// Our own words in the control file. lib/fake.h explains them.
const (
	wordEngine = simulated.FirstOwn + iota
	wordInits
	wordConnections
	wordEmbedded
	wordGroups
	wordFieldGroups
	wordWatches
	wordHealthWatches
	wordFailAt
	wordFailCode
	wordFailed
	wordMostValues
	wordLimits
	wordVersions
	wordSeverity
	wordSince
)

// simulation is the library's code. Like DCGM's library it stays loaded.
var simulation = sync.OnceValue(func() *simulated.Library {
	lib, err := fs.Sub(sources, "lib")
	if err != nil {
		panic(err) // the code is embedded
	}
	return &simulated.Library{
		Name: "DCGM", File: "libdcgm.so.4", Scripted: true, Sources: lib, Headers: sync.OnceValues(Headers),
		Link: []string{"-Wl,-z,nodelete"},
	}
})

// functions returns the functions of lib/functions.def; 405 is version 4.5.
var functions = sync.OnceValue(func() []simulated.Function { return simulation().Functions() })

// Headers returns go-dcgm's copies of DCGM's headers, at the version in go.mod.
func Headers() (map[string][]byte, error) {
	dir, err := simulated.ModuleFolder("github.com/NVIDIA/go-dcgm", "pkg/dcgm")
	out := map[string][]byte{}
	for _, name := range []string{"dcgm_agent.h", "dcgm_api_export.h", "dcgm_errors.h", "dcgm_fields.h", "dcgm_structs.h"} {
		if err == nil {
			out[name], err = os.ReadFile(filepath.Join(dir, name))
		}
	}
	return out, err
}

// Compile runs the C compiler in a directory that contains DCGM's headers and files.
func Compile(dir string, files map[string][]byte, args ...string) error {
	headers, err := Headers()
	if err != nil {
		return err
	}
	maps.Copy(headers, files)
	for name, text := range headers {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return simulated.CC(dir, args...)
}

// build compiles a library of a version such as "4.4.1" and returns its file.
func build(version string, without []string) (string, error) {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return "", fmt.Errorf("version %q: want 4.6.0: %w", version, err)
	}
	symbols, err := simulation().Symbols(100*major+minor, without)
	if err != nil {
		return "", err
	}
	return simulation().Build(symbols)
}
