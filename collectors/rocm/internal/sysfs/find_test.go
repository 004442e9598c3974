package sysfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func find(t testing.TB, tree *rocmtest.Tree) []GPU {
	t.Helper()
	found := testkit.Get(New(Options{Root: tree.Root}).Find(context.Background()))(t)
	testkit.ErrorIf(t, found.Driver != "6.8.5" || len(found.LeftOut) > 0, "driver %q, left out %q", found.Driver, found.LeftOut)
	return found.GPUs
}

func TestFindMI250X(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{GPUs: 4})
	var want []GPU
	for i, g := range tree.GPUs {
		want = append(want, GPU{
			PCI: g.PCI, Card: fmt.Sprintf("card%d", i+1), Render: fmt.Sprintf("renderD%d", 128+i),
			Path:     filepath.Dir(g.Path("vendor")),
			UniqueID: g.UniqueID, Serial: g.Serial, Model: "AMD INSTINCT MI250X (MCM) OAM AC MBA",
			VBIOS: "113-D65201-054", Number: "D65201", Device: 0x7408, Bus: 32e9, // 16 lanes of 16 GT/s
			Instances: []Instance{{Node: i + 2, KFD: g.Instances[0].KFD, Render: g.Render, Units: 110, Memory: 68702699520}},
		})
	}
	diff := cmp.Diff(want, find(t, tree))
	testkit.ErrorIf(t, diff != "", "%v", diff)
	a, b := tree.GPUs[0].Serial, tree.GPUs[1].Serial
	testkit.ErrorIf(t, a != b || b == tree.GPUs[2].Serial, "the two dies of a package have one serial number")
}

func TestFindPartitions(t *testing.T) {
	for mode, n := range map[string]int{"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8} {
		tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 2, Partition: mode, Memory: "NPS4"})
		gpus := find(t, tree)
		testkit.FatalIf(t, len(gpus) != 2, "%s: %d boards: partitions are none", mode, len(gpus))
		for i, g := range gpus {
			if g.Compute != mode || g.Memory != "NPS4" || len(g.Instances) != n {
				t.Errorf("%s: %+v", mode, g)
				continue
			}
			for k, inst := range g.Instances {
				at := i*n + k
				want := Instance{ID: k, Node: at + 2, KFD: tree.GPUs[i].Instances[k].KFD,
					Render: fmt.Sprintf("renderD%d", 128+at), Units: 304 / n, Memory: 206141652992 / uint64(n)}
				if k > 0 { // the first is the board itself
					want.Name = fmt.Sprintf("amdgpu_xcp_%d", i*(n-1)+k)
				}
				diff := cmp.Diff(want, inst)
				testkit.ErrorIf(t, diff != "", "%s: %s", mode, diff)
			}
		}
	}
}

func TestFindOthers(t *testing.T) {
	radeon := find(t, rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1, NoBMC: true}))
	testkit.ErrorIf(t, len(radeon) != 1 || radeon[0].Model != "Radeon RX 7900 XTX" || radeon[0].Card != "card0" || radeon[0].Compute != "", "Radeon: %+v", radeon)
	apu := find(t, rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.APU, GPUs: 1, NoKFD: true}))
	testkit.ErrorIf(t, len(apu) != 1 || apu[0].Model != "AMD GPU 1002:15bf" || apu[0].UniqueID != 0 || apu[0].Instances != nil, "APU: %+v", apu)
}

// TestModelFromLists checks that the model names of boards without inventory memory
// come from the ID lists of the host or image.
func TestModelFromLists(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.APU, GPUs: 1})
	f := func(path, text, want string) {
		t.Helper()
		path = filepath.Join(tree.Root, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
		testkit.Equal(t, "model", want, find(t, tree)[0].Model)
	}
	f("usr/share/libdrm/amdgpu.ids", "# list\n1.0.0\n15BF,\tC1,\tAMD Radeon 760M\n15BF,\t00,\tAMD Radeon 780M\n", "AMD Radeon 780M")
	tree.GPUs[0].Set(t, "revision", "0xc1\n")
	f("opt/amdgpu/share/libdrm/amdgpu.ids", "", "AMD Radeon 760M")
	tree.GPUs[0].Set(t, "product_name", "Board's own\n")
	f("opt/amdgpu/share/libdrm/amdgpu.ids", "", "Board's own")
}

func TestFindNothing(t *testing.T) {
	empty := New(Options{Root: t.TempDir()})
	found, err := empty.Find(context.Background())
	testkit.ErrorIf(t, len(found.GPUs) != 0 || found.Driver != "" || err != nil, "without /sys: %+v, %v", found, err)
	tree := rocmtest.NewTree(t, rocmtest.Options{GPUs: 1})
	g := tree.GPUs[0]
	for key, text := range map[string]string{"vendor": "0x10de\n", "driver": ""} {
		if text == "" {
			g.Remove(t, key)
			g.Remove(t, "uevent")
		} else {
			g.Set(t, key, text)
		}
		testkit.Equal(t, fmt.Sprintf("with another %s", key), 0, len(find(t, tree)))
		g.Reset(t, key)
	}
}

// TestFindBroken checks that a board with empty, torn or missing files is found with its other properties.
func TestFindBroken(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{GPUs: 2})
	g := tree.GPUs[0]
	for key, text := range map[string]string{
		"unique_id": "not hex\n", "serial_number": "", "vbios_version": strings.Repeat("x", 5000),
		"product_name": "\xff name \xfe\n", "kfd/properties": "location_id\ndomain x\n", "kfd/gpu_id": "-1\n",
	} {
		g.Set(t, key, text)
	}
	gpus := find(t, tree)
	testkit.FatalIf(t, len(gpus) != 2, "%v", gpus)
	b := gpus[0]
	testkit.ErrorIf(t, b.UniqueID != 0 || b.Serial != "" || b.VBIOS != "" || b.Model != "name" || b.Instances != nil, "%+v", b)
	testkit.Equal(t, "instances of the other board", 1, len(gpus[1].Instances))
}

// TestFindLeavesOut checks that Find skips indistinguishable cards and cards beyond the limit, and finds the others.
func TestFindLeavesOut(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 3})
	tree.GPUs[1].Set(t, "unique_id", fmt.Sprintf("%016x\n", tree.GPUs[0].UniqueID))
	found, err := New(Options{Root: tree.Root}).Find(context.Background())
	if err != nil || len(found.GPUs) != 2 || found.GPUs[0].PCI != tree.GPUs[0].PCI || found.GPUs[1].PCI != tree.GPUs[2].PCI {
		t.Errorf("with a unique id twice: %+v, %v, want the first and the third", found.GPUs, err)
	}
	testkit.ErrorIf(t, len(found.LeftOut) != 1 || !strings.Contains(found.LeftOut[0], tree.GPUs[1].PCI), "left out %q, want the second", found.LeftOut)
	var many []GPU
	for i := range 1000 {
		many = append(many, GPU{PCI: fmt.Sprintf("%04x:00:00.0", i/2), Card: fmt.Sprintf("card%d", i), Instances: make([]Instance, 8)})
	}
	kept, leftOut := distinct(many)
	if len(kept) != maxDevices/9 || len(kept)+len(leftOut) != len(many) {
		t.Errorf("%d of 1000 cards kept, %d left out, want %d kept", len(kept), len(leftOut), maxDevices/9)
	}
}

// TestFindAbsurd checks that Find ignores impossible counts.
func TestFindAbsurd(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{GPUs: 1})
	tree.GPUs[0].Set(t, "kfd/properties", "simd_count 18446744073709551615\nsimd_per_cu 1\nlocation_id 16640\ndomain 0\ndrm_render_minor 18446744073709551615\n")
	gpus := find(t, tree)
	testkit.ErrorIf(t, len(gpus) != 1 || len(gpus[0].Instances) != 1 || gpus[0].Instances[0].Units != 0, "%+v, want an instance with no known number of compute units", gpus)
	nodes := filepath.Dir(filepath.Dir(tree.GPUs[0].Path("kfd/properties")))
	for i := range 40 {
		addNode(t, nodes, 100+i, fmt.Sprintf("location_id %d\n", 16640|i<<28))
	}
	if gpus = find(t, tree); len(gpus[0].Instances) != maxInstances {
		t.Errorf("%d instances, want %d", len(gpus[0].Instances), maxInstances)
	}
}

// addNode adds a node to a topology.
func addNode(t *testing.T, nodes string, number int, properties string) {
	t.Helper()
	dir := filepath.Join(nodes, fmt.Sprint(number))
	err := errors.Join(os.MkdirAll(dir, 0o750),
		os.WriteFile(filepath.Join(dir, "gpu_id"), fmt.Appendln(nil, 7000+number), 0o600), os.WriteFile(filepath.Join(dir, "properties"), []byte(properties), 0o600))
	must(t, err)
}

// TestFindNumbersPartitionsByLocation checks that partition numbers follow the location,
// not the order of nodes, also if some are hidden.
func TestFindNumbersPartitionsByLocation(t *testing.T) {
	f := func(what string, nodes []string, want ...int) {
		t.Helper()
		tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 1, Partition: "DPX"})
		dir := filepath.Dir(filepath.Dir(tree.GPUs[0].Path("kfd/properties")))
		for _, i := range tree.GPUs[0].Instances {
			must(t, os.RemoveAll(filepath.Join(dir, fmt.Sprint(i.Node))))
		}
		for i, n := range nodes {
			addNode(t, dir, 10+i, n+"\n")
		}
		var got []int
		for _, i := range find(t, tree)[0].Instances {
			got = append(got, i.ID)
		}
		testkit.Equal(t, what, want, got)
	}
	at := func(partition int) string { return fmt.Sprintf("location_id %d", 0x4100|partition<<28) }
	f("in order", []string{at(0), at(1)}, 0, 1)
	f("in another order", []string{at(3), at(0), at(1)}, 0, 1, 3)
	f("only the last", []string{at(3)}, 3)
	f("in the bits of the function", []string{"location_id 16640", "location_id 16643"}, 0, 3)
	f("one twice", []string{at(1), at(1)}, 1)
	f("more than there are", []string{at(8), at(15), at(7)}, 7)
	f("of another device", []string{"location_id 33024", at(2)}, 2)
}

// TestFindVirtualFunctions checks that virtual functions do not become partitions of each other.
func TestFindVirtualFunctions(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 2})
	a, b := tree.GPUs[0], tree.GPUs[1]
	const address = "0000:41:00.1"
	dir := filepath.Dir(b.Path("vendor"))
	moved := filepath.Join(filepath.Dir(dir), address)
	err := errors.Join(os.Rename(dir, moved), os.Remove(tree.Path("class/drm/"+b.Card)), os.MkdirAll(tree.Path("class/drm/"+b.Card), 0o750),
		os.Symlink(moved, tree.Path("class/drm/"+b.Card+"/device")))
	must(t, err)
	b.Remove(t, "kfd/properties")
	addNode(t, filepath.Dir(filepath.Dir(a.Path("kfd/properties"))), b.Instances[0].Node, "location_id 16641\n")
	for _, g := range find(t, tree) {
		testkit.ErrorIf(t, len(g.Instances) != 1 || g.Instances[0].ID != 0, "%s has instances %+v, want the first alone", g.PCI, g.Instances)
	}
}

// TestFindHidden checks that hidden partitions are counted and the others keep their numbers.
func TestFindHidden(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 2, Partition: "QPX"})
	tree.GPUs[0].Hide(t, 0)
	tree.GPUs[0].Hide(t, 2)
	tree.AsUser(t, func() {
		found, err := New(Options{Root: tree.Root}).Find(context.Background())
		testkit.FatalIf(t, err != nil || found.Hidden != 2 || len(found.GPUs) != 2 || len(found.GPUs[1].Instances) != 4, "%+v, %v, want 2 hidden", found, err)
		i := found.GPUs[0].Instances
		testkit.ErrorIf(t, len(i) != 2 || i[0].ID != 1 || i[1].ID != 3 || i[1].KFD != tree.GPUs[0].Instances[3].KFD, "instances %+v, want 1 and 3", i)
	})
}
