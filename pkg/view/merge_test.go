package view

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"warpgauge/internal/testkit"
)

func sources(names ...string) (out []*Source) {
	for _, n := range names {
		out = append(out, &Source{Collector: n})
	}
	return out
}

func names(v *View) string {
	var out []string
	for _, s := range v.Sources {
		out = append(out, s.Collector)
	}
	return strings.Join(out, " ")
}

func TestMergerKeepsTheOrderOfThePartsAndItsOwnVersion(t *testing.T) {
	var m Merger
	first, second, third := m.Part(), m.Part(), m.Part()
	version := m.Board().Load().Version
	f := func(p *Part, v []*Source, want string) {
		t.Helper()
		p.Publish(v)
		got := m.Board().Load()
		testkit.Equal(t, "the board shows", want, names(got))
		testkit.Equal(t, fmt.Sprintf("version went from %d to", version), version+1, got.Version)
		version = got.Version
	}
	f(third, sources("c"), "c")
	old := m.Board().Load()
	f(first, sources("a1", "a2"), "a1 a2 c")
	f(second, sources("b"), "a1 a2 b c")
	f(first, nil, "b c") // a child that has died for good
	f(first, sources("a3"), "a3 b c")
	testkit.Equal(t, "a View that was loaded before now shows", "c", names(old))
}

// TestPartsPublishAtOnce runs under the race detector, and checks that readers see versions that only grow.
func TestPartsPublishAtOnce(t *testing.T) {
	const parts, rounds = 4, 500
	var m Merger
	var publishers, readers sync.WaitGroup
	done := make(chan struct{})
	readers.Go(func() {
		for last := uint64(0); ; {
			v := m.Board().Load()
			testkit.ErrorIf(t, v.Version < last || len(v.Sources) > parts, "version %d with %d sources after version %d", v.Version, len(v.Sources), last)
			last = v.Version
			select {
			case <-done:
				return
			default:
			}
		}
	})
	for range parts {
		p := m.Part()
		publishers.Go(func() {
			for range rounds {
				p.Publish(sources("a"))
			}
		})
	}
	publishers.Wait()
	close(done)
	readers.Wait()
	if v := m.Board().Load(); v.Version != parts*rounds || len(v.Sources) != parts {
		t.Errorf("in the end version %d with %d sources, want %d and %d", v.Version, len(v.Sources), parts*rounds, parts)
	}
}
