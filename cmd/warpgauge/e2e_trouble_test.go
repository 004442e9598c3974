package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// trouble is a fault of a simulated node that begins and ends when the test says
// so. Faults by the clock are windows that a slow machine misses.
type trouble struct {
	path  string
	begun time.Time
}

func newTrouble(t *testing.T) *trouble {
	t.Helper()
	return &trouble{path: filepath.Join(t.TempDir(), "fault")}
}

// fault is an entry of a spec's faults; rest are its keys but for when it is.
func (f *trouble) fault(rest string) string {
	return fmt.Sprintf("- {%s, while: %q}\n", rest, f.path)
}

func (f *trouble) begin(t *testing.T) {
	t.Helper()
	must(t, os.WriteFile(f.path, nil, 0o600))
	f.begun = time.Now()
}

func (f *trouble) end(t *testing.T) {
	t.Helper()
	must(t, os.Remove(f.path))
}

// hang is one GPU that hangs from begin on.
func hang(t *testing.T) (f *trouble, spec string) {
	t.Helper()
	f = newTrouble(t)
	return f, "--fake-spec=" + file(t, "spec.yaml", "faults:\n"+f.fault("kind: hang, device: "+hungGPU))
}
