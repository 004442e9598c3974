package nvmltest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"warpgauge/collectors/internal/simulated"
)

// Calls returns how often all processes that use the library have called a function since New or ResetCalls.
func (n *Node) Calls(name string) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count(name) - n.calls[name]
}

// ResetCalls makes Calls count from 0.
func (n *Node) ResetCalls() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range functions() {
		n.calls[f.Name] = n.count(f.Name)
	}
}

// AllCalls returns the called functions with their numbers of calls.
func (n *Node) AllCalls() map[string]uint64 {
	out := make(map[string]uint64)
	for _, f := range functions() {
		if c := n.Calls(f.Name); c > 0 {
			out[f.Name] = c
		}
	}
	return out
}

func (n *Node) count(name string) uint64 {
	i := slices.IndexFunc(functions(), func(f simulated.Function) bool { return f.Name == name })
	if i < 0 {
		n.fail(fmt.Errorf("count calls of %q: the simulated NVML has no such function", name))
		return 0
	}
	v, err := n.lib.Control.Calls(i)
	if err != nil {
		n.fail(err)
	}
	return v
}

// Held counts the resources that users of the library hold, in all processes. A killed process leaves its share behind.
type Held struct {
	Inits     int // initialisations without a shutdown
	Files     int // open devices
	EventSets int
	Samples   int // GPM samples
}

// Held returns the resources held now: the zero value when everything was released.
func (n *Node) Held() Held {
	return Held{Inits: n.word(wordInits), Files: n.word(wordFiles), EventSets: n.word(wordEventSets), Samples: n.word(wordSamples)}
}

// Hanging returns the number of hanging calls.
func (n *Node) Hanging() int { return n.word(simulated.Hanging) }

func (n *Node) word(word int) int {
	v, err := n.lib.Control.Read(word)
	if err != nil {
		n.fail(err)
	}
	return int(int64(v))
}

// OpenFiles returns the node's devices that a process (0: this one) has open, by their names below dev.
func (n *Node) OpenFiles(pid int) []string {
	if pid == 0 {
		pid = os.Getpid()
	}
	fds, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*")) // the pattern is valid
	var out []string
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if name, ok := strings.CutPrefix(target, filepath.Join(n.dir, "dev")+"/"); err == nil && ok {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
