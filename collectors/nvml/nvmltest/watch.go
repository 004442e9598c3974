package nvmltest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"warpgauge/collectors/internal/simulated"
)

// Calls is how often a function was called since New or ResetCalls, by all
// processes that use the library.
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

// AllCalls are the functions that were called, with how often.
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

// Held is what the users of the library hold, in all processes. A process that is
// killed leaves its share behind.
type Held struct {
	Inits     int // initialisations that no shutdown has ended
	Files     int // open devices
	EventSets int
	Samples   int // of GPM
}

// Held is what is held now: the zero value when everything was released.
func (n *Node) Held() Held {
	return Held{Inits: n.word(wordInits), Files: n.word(wordFiles), EventSets: n.word(wordEventSets), Samples: n.word(wordSamples)}
}

// Hanging is how many calls hang now.
func (n *Node) Hanging() int { return n.word(simulated.Hanging) }

// WaitHanging returns when that many calls hang, which the caller has started.
func (n *Node) WaitHanging(count int) {
	for range 10_000 {
		if n.Hanging() == count {
			return
		}
		time.Sleep(time.Millisecond)
	}
	n.fail(fmt.Errorf("%d calls hang after 10 s, not %d", n.Hanging(), count))
}

func (n *Node) word(word int) int {
	v, err := n.lib.Control.Read(word)
	if err != nil {
		n.fail(err)
	}
	return int(int64(v))
}

// OpenFiles are the node's devices that a process (0: this one) has open, by
// their names below dev.
func (n *Node) OpenFiles(pid int) []string {
	if pid == 0 {
		pid = os.Getpid()
	}
	fds, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*"))
	if err != nil {
		n.fail(err)
	}
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
