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

	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/collectors/rocm/rocmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func find(t testing.TB, tree *rocmtest.Tree) []raw.GPU {
	t.Helper()
	gpus, node, err := New(Options{Root: tree.Root}).Find(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if node.Driver != "6.8.5" {
		t.Errorf("driver %q", node.Driver)
	}
	return gpus
}

func TestFindMI250X(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{GPUs: 4})
	var want []raw.GPU
	for i, g := range tree.GPUs {
		want = append(want, raw.GPU{
			PCI: g.PCI, Card: fmt.Sprintf("card%d", i+1), Render: fmt.Sprintf("renderD%d", 128+i),
			Path:     filepath.Dir(g.Path("vendor")),
			UniqueID: g.UniqueID, Serial: g.Serial, Model: "AMD INSTINCT MI250X (MCM) OAM AC MBA",
			VBIOS: "113-D65201-054", DeviceID: 0x7408, Hive: 7312645201374019923,
			Instances: []raw.Instance{{Node: i + 2, KFD: g.Instances[0].KFD, Render: g.Render, XCCs: 1, Units: 110}},
		})
	}
	if diff := cmp.Diff(want, find(t, tree)); diff != "" {
		t.Error(diff)
	}
	if a, b := tree.GPUs[0].Serial, tree.GPUs[1].Serial; a != b || b == tree.GPUs[2].Serial {
		t.Error("the two dies of a package have one serial number")
	}
}

func TestFindPartitions(t *testing.T) {
	for mode, n := range map[string]int{"SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8} {
		tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 2, Partition: mode, Memory: "NPS4"})
		gpus := find(t, tree)
		if len(gpus) != 2 {
			t.Fatalf("%s: %d boards: partitions are none", mode, len(gpus))
		}
		for i, g := range gpus {
			if g.Compute != mode || g.Memory != "NPS4" || len(g.Instances) != n || g.APU {
				t.Errorf("%s: %+v", mode, g)
				continue
			}
			for k, inst := range g.Instances {
				at := i*n + k
				want := raw.Instance{ID: k, Node: at + 2, KFD: tree.GPUs[i].Instances[k].KFD,
					Render: fmt.Sprintf("renderD%d", 128+at), XCCs: 8 / n, Units: 304 / n}
				if k > 0 { // the first is the board's own device
					want.Name = fmt.Sprintf("amdgpu_xcp_%d", i*(n-1)+k)
				}
				if diff := cmp.Diff(want, inst); diff != "" {
					t.Errorf("%s: %s", mode, diff)
				}
			}
		}
	}
}

func TestFindOthers(t *testing.T) {
	radeon := find(t, rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1, NoBMC: true}))
	if len(radeon) != 1 || radeon[0].Model != "Radeon RX 7900 XTX" || radeon[0].Card != "card0" || radeon[0].APU || radeon[0].Compute != "" || radeon[0].Hive != 0 {
		t.Errorf("Radeon: %+v", radeon)
	}
	apu := find(t, rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.APU, GPUs: 1, NoKFD: true}))
	if len(apu) != 1 || apu[0].Model != "AMD GPU 1002:15bf" || !apu[0].APU || apu[0].UniqueID != 0 || apu[0].Instances != nil {
		t.Errorf("APU: %+v", apu)
	}
}

// The names of boards without inventory memory come from the lists that the
// host or image has.
func TestModelFromLists(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.APU, GPUs: 1})
	f := func(path, text, want string) {
		t.Helper()
		path = filepath.Join(tree.Root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := find(t, tree)[0].Model; got != want {
			t.Errorf("model %q, want %q", got, want)
		}
	}
	f("usr/share/misc/pci.ids", "1001  Other\n\t15bf  Wrong vendor\n1002  AMD/ATI\n\t15be  Wrong\n\t\t15bf 0000  Subsystem\n\t15bf  Phoenix1\n1003  After\n", "Phoenix1")
	f("usr/share/libdrm/amdgpu.ids", "# list\n1.0.0\n15BF,\tC1,\tAMD Radeon 760M\n15BF,\t00,\tAMD Radeon 780M\n", "AMD Radeon 780M")
	tree.GPUs[0].Set(t, "revision", "0xc1\n")
	f("usr/share/misc/pci.ids", "1003  No such vendor\n", "AMD Radeon 760M")
	tree.GPUs[0].Set(t, "product_name", "Board's own\n")
	f("usr/share/misc/pci.ids", "", "Board's own")
}

func TestFindNothing(t *testing.T) {
	empty := New(Options{Root: t.TempDir()})
	gpus, node, err := empty.Find(context.Background())
	if len(gpus) != 0 || node.Driver != "" || err != nil {
		t.Errorf("without /sys: %v, %v, %v", gpus, node, err)
	}
	tree := rocmtest.NewTree(t, rocmtest.Options{GPUs: 1})
	g := tree.GPUs[0]
	for key, text := range map[string]string{"vendor": "0x10de\n", "driver": ""} {
		if text == "" {
			g.Remove(t, key)
			g.Remove(t, "uevent")
		} else {
			g.Set(t, key, text)
		}
		if got := find(t, tree); len(got) != 0 {
			t.Errorf("with another %s: %+v", key, got)
		}
		g.Reset(t, key)
	}
}

// A board whose files are empty, torn or not there is found with what is left.
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
	if len(gpus) != 2 {
		t.Fatal(gpus)
	}
	b := gpus[0]
	if b.UniqueID != 0 || b.Serial != "" || b.VBIOS != "" || b.Model != "name" || b.Instances != nil {
		t.Errorf("%+v", b)
	}
	if len(gpus[1].Instances) != 1 {
		t.Error("the other board suffers")
	}
}

// A driver that hangs in a file holds up one search and no more.
func TestFindHangs(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{GPUs: 1})
	pipe := tree.GPUs[0].FIFO(t, "unique_id")
	r := New(Options{Root: tree.Root})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := r.Find(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Find = %v, want that of ctx", err)
	}
	if _, _, err := r.Find(context.Background()); !errors.Is(err, errFinding) {
		t.Fatalf("second Find = %v, want %v", err, errFinding)
	}
	pipe.Feed(t, "5a1c0de000000000\n")
	<-r.finding
	tree.GPUs[0].Reset(t, "unique_id")
	if gpus, _, err := r.Find(context.Background()); err != nil || len(gpus) != 1 {
		t.Fatalf("after the driver has answered: %v, %v", gpus, err)
	}
}

// Older kernels have the partition in the bits of the PCI function.
func TestLocate(t *testing.T) {
	for _, id := range []uint64{0x4100, 0x4103, 0x4100 | 3<<28} {
		if l := locate(id, 1); l.domain != 1 || l.bus != 0x41 || l.device != 0 {
			t.Errorf("locate(%#x) = %+v", id, l)
		}
	}
}

func TestParsePCI(t *testing.T) {
	f := func(name string, want location, ok bool) {
		t.Helper()
		if got, good := parsePCI(name); good != ok || ok && got != want {
			t.Errorf("parsePCI(%q) = %+v, %t", name, got, good)
		}
	}
	f("0000:41:00.0", location{0, 0x41, 0, 0}, true)
	f("10001:ff:1f.7", location{0x10001, 0xff, 0x1f, 7}, true)
	for _, name := range []string{"", "amdgpu_xcp_1", "0000:41:00", "0000:4g:00.0", ":41:00.0", "0000:041:00.0"} {
		f(name, location{}, false)
	}
}
