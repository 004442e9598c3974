// Package nvmltest simulates an NVIDIA node for tests: its own libnvidia-ml.so.1, written in C against NVML's public
// header and compiled when a test needs it, and a Go handle that changes the library's answers while it runs.
//
// The library is a real shared object, so tests exercise dlopen, dlsym, go-nvml's lazy binding and our own C calls as
// on a node with a driver. It reads a script (see README.md), which a Node writes and changes. The library sees a
// change at its next call, in this process and in any other.
//
// go-nvml's calls are undefined symbols of the executable, which the loader binds for ever to the first loaded library.
// A process therefore has one library, which all Nodes of a test binary share: it shows the newest Node until that
// Node's test ends. Tests that use it cannot be parallel. A test that needs another build of the library (an older
// driver, missing symbols) calls OwnProcess first.
//
// Serial numbers begin with SIM and UUIDs with GPU-fa4e, so that no simulated board is taken for a real one.
package nvmltest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"warpgauge/collectors/internal/simulated"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
)

// Config of a Node. The zero value is a DGX H100 (8 GPUs, 18 NVLinks each) under driver 580.
type Config struct {
	// Preset is a file of presets/ without its ending; "" means "h100-sxm".
	Preset string
	// GPUs is the number of boards; 0 means the preset's number.
	GPUs int
	// Driver is a branch ("470", "525", "550", "580") or a version ("550.54.15"); "" means "580". The library lacks
	// later symbols and field IDs.
	Driver string
	// Without lists further symbols that the library lacks.
	Without []string
	// MIG enables MIG mode with these profiles: {0: {"1g.10gb", "3g.40gb"}}.
	MIG map[int][]string
	// Lines of script follow those of the preset and override them.
	Lines []string
}

func (c Config) withDefaults() Config {
	if c.Preset == "" {
		c.Preset = "h100-sxm"
	}
	if c.Driver == "" {
		c.Driver = "580"
	}
	return c
}

// build compiles the library and returns its file.
func (c Config) build() (string, error) {
	d, err := findDriver(c.Driver)
	if err != nil {
		return "", err
	}
	symbols, err := simulation().Symbols(d.branch, c.Without)
	if err != nil {
		return "", err
	}
	return simulation().Build(symbols)
}

// New makes a Node, which the library shows until the test ends or another Node is made. It skips the test if there is no C
// compiler, unless WARPGAUGE_REQUIRE names cc.
func New(tb testing.TB, c Config) *Node {
	tb.Helper()
	programtest.Find(tb, "cc")
	c = c.withDefaults()
	lib, err := nodes.library(c)
	testkit.Must(tb, err)
	n := &Node{config: c, lib: lib, fail: func(err error) { tb.Helper(); tb.Fatal(err) }}
	testkit.Must(tb, n.prepare())
	testkit.Must(tb, nodes.push(n))
	tb.Cleanup(func() {
		tb.Helper()
		if err := n.Close(); err != nil {
			tb.Error(err)
		}
	})
	return n
}

// Write puts a separate library with its own Node into a directory, for programs that are started with
// --nvml-library=DIR/libnvidia-ml.so.1. It stays there until the directory is removed.
func Write(dir string, c Config, fail func(error)) (*Node, error) {
	c = c.withDefaults()
	built, err := c.build()
	if err != nil {
		return nil, err
	}
	own, err := simulation().Copy(dir, built)
	if err != nil {
		return nil, err
	}
	n := &Node{config: c, lib: &library{c.Driver, built, own}, fail: fail, alone: true, dir: filepath.Join(filepath.Dir(own.Path), "root")}
	if err := n.prepare(); err != nil {
		return nil, err
	}
	return n, n.show()
}

// stack holds the Nodes of this process; the library shows the top one. It is package-level state because the library
// is process-wide: see the package comment.
type stack struct {
	mu    sync.Mutex
	lib   *library
	nodes []*Node
}

var nodes stack

// library is this process's only library.
func (s *stack) library(c Config) (*library, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	built, err := c.build()
	if err != nil {
		return nil, err
	}
	if s.lib != nil {
		if s.lib.built != built {
			return nil, fmt.Errorf("this process has the simulated NVML of driver %s already and cannot have another (see nvmltest.OwnProcess)", s.lib.driver)
		}
		return s.lib, nil
	}
	s.lib, err = install(c.Driver, built)
	return s.lib, err
}

// push makes the library show n.
func (s *stack) push(n *Node) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = append(s.nodes, n)
	return n.show()
}

// pop removes n; the library shows the previous Node.
func (s *stack) pop(n *Node) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = slices.DeleteFunc(s.nodes, func(o *Node) bool { return o == n })
	if len(s.nodes) == 0 {
		return nil
	}
	return s.nodes[len(s.nodes)-1].show()
}

// shown reports whether the library shows n.
func (s *stack) shown(n *Node) bool {
	if n.alone {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.nodes) > 0 && s.nodes[len(s.nodes)-1] == n
}

// Reread makes the library that Write put into a directory read its script again.
func Reread(dir string) error { return simulated.Tell(dir, simulated.Generation) }

// Install copies the Node's library to path, creates the needed directories, and returns path. The loader takes it for
// another library, but it answers as this process's Node.
func (n *Node) Install(path string) string {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		n.fail(err)
	}
	if err := n.lib.Share(path, n.lib.built); err != nil {
		n.fail(err)
	}
	return path
}
