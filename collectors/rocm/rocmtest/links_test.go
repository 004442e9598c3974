package rocmtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// linksOf are the links of a node as "to:kind", in order of their numbers.
func linksOf(t *testing.T, tr *Tree, from int) string {
	t.Helper()
	entries, err := os.ReadDir(tr.Path(node(from, "io_links")))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		said := map[string]string{}
		for line := range strings.Lines(read(t, tr.Path(node(from, "io_links", e.Name(), "properties")))) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			said[name] = value
		}
		if said["node_from"] != fmt.Sprint(from) {
			t.Errorf("link %s of node %d comes from node %s", e.Name(), from, said["node_from"])
		}
		out = append(out, said["node_to"]+":"+said["type"])
	}
	return strings.Join(out, " ")
}

// Next to each of two processors, which are nodes 0 and 1, is half of the GPUs.
func TestNodesReachEachOther(t *testing.T) {
	f := func(tr *Tree, want map[int]string) {
		t.Helper()
		for from, w := range want {
			if got := linksOf(t, tr, from); got != w {
				t.Errorf("node %d: links %q, want %q", from, got, w)
			}
		}
	}
	f(NewTree(t, Options{Model: RX7900, GPUs: 4}), map[int]string{
		0: "1:2 2:2 3:2", 1: "0:2 4:2 5:2", 2: "0:2", 3: "0:2", 4: "1:2", 5: "1:2",
	})
	f(NewTree(t, Options{Model: MI300X, GPUs: 2, Partition: "DPX"}), map[int]string{
		0: "1:2 2:2 3:2", 1: "0:2 4:2 5:2",
		2: "0:2 3:11 4:11 5:11", 3: "0:2 2:11 4:11 5:11", 4: "1:2 2:11 3:11 5:11", 5: "1:2 2:11 3:11 4:11",
	})
	tr := NewTree(t, Options{Model: MI250X, GPUs: 3})
	tr.GPUs[1].Vanish(t)
	f(tr, map[int]string{0: "1:2 2:2", 1: "0:2 4:2", 2: "0:2 4:11", 4: "1:2 2:11"})
	tr.GPUs[1].Return(t)
	f(tr, map[int]string{0: "1:2 2:2 3:2", 1: "0:2 4:2", 2: "0:2 3:11 4:11", 3: "0:2 2:11 4:11", 4: "1:2 2:11 3:11"})
}
