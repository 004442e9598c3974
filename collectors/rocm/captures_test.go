package rocm

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// capture holds published data of a board: numbers of /sys and members of gpu_metrics, each with its source, and the
// values that follow from them. The files are in testdata/captures. Members that the source lacks are "not available".
type capture struct {
	name, source string
	boards       []board
	nodes        []string
	sys          map[string]string
	steps        []step
	instances    []string
}

type board struct{ pci, device, compute string }

// step is one file of gpu_metrics and the values expected after it.
type step struct {
	revision string
	size     int
	members  rocmtest.Members
	wants    []wanted
}

type wanted struct {
	name, labels string
	value        string
	growth       bool // since the previous step
}

func captures(t testing.TB) []capture {
	t.Helper()
	files, err := filepath.Glob("testdata/captures/*.txt")
	testkit.FatalIf(t, err != nil || len(files) < 20, "%d captures, %v", len(files), err)
	var out []capture
	for _, file := range files {
		out = append(out, readCapture(t, file))
	}
	return out
}

func readCapture(t testing.TB, file string) capture {
	t.Helper()
	f := testkit.Get(os.Open(file))(t)
	defer f.Close()
	c := capture{name: strings.TrimSuffix(filepath.Base(file), ".txt"), sys: map[string]string{}, steps: []step{{}}}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		s := &c.steps[len(c.steps)-1]
		if member, ok := strings.CutPrefix(line, "  "); ok {
			words := strings.Fields(member)
			s.members[words[0]] = figures(t, words[1:])
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "board", "note":
		case "source":
			c.source = rest
		case "pci":
			c.boards = append(c.boards, board{pci: rest, device: "0x0000"})
		case "device":
			c.boards[len(c.boards)-1].device = rest
		case "compute":
			c.boards[len(c.boards)-1].compute = rest
		case "size":
			s.size = int(figures(t, []string{rest})[0])
		case "sys":
			name, text, _ := strings.Cut(rest, " = ")
			c.sys[name] = strings.ReplaceAll(text, `\n`, "\n")
		case "metrics":
			s.revision, s.members = rest, rocmtest.Members{}
		case "then":
			c.steps = append(c.steps, step{})
		case "node":
			c.nodes = append(c.nodes, rest)
		case "instance":
			c.instances = append(c.instances, rest)
		case "want":
			s.wants = append(s.wants, parseWanted(rest))
		default:
			t.Fatalf("%s: unknown line %q", file, line)
		}
	}
	testkit.FatalIf(t, c.source == "", "%s has no source", file)
	return c
}

func parseWanted(text string) wanted {
	name, value, _ := strings.Cut(text, " = ")
	name, growth := strings.CutPrefix(name, "growth ")
	name, labels, _ := strings.Cut(name, "{")
	return wanted{name, strings.TrimSuffix(labels, "}"), value, growth}
}

// figures parses numbers; "-" means "not available".
func figures(t testing.TB, words []string) []uint64 {
	t.Helper()
	var out []uint64
	for _, w := range words {
		v := uint64(math.MaxUint64)
		if w != "-" {
			var err error
			if v, err = strconv.ParseUint(w, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, v)
	}
	return out
}

// file encodes the members.
func (s *step) file(t testing.TB) []byte {
	t.Helper()
	b, used, err := rocmtest.Encode(s.revision, s.members)
	testkit.FatalIf(t, err != nil || used != len(s.members), "%d of %d members are in revision %s: %v", used, len(s.members), s.revision, err)
	return b
}

// build writes the /sys of a capture.
func (c *capture) build(t testing.TB, root string) {
	t.Helper()
	write := func(name, text string) {
		path := filepath.Join(root, "sys", name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o750))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	link := func(target, name string) {
		path := filepath.Join(root, "sys", name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o750))
		must(t, os.Symlink(filepath.Join(root, "sys", target), path))
	}
	for i, b := range c.boards {
		dir := "devices/" + b.pci
		card := fmt.Sprintf("card%d", i)
		for name, text := range map[string]string{"vendor": "0x1002", "device": b.device, "uevent": "DRIVER=amdgpu", "current_compute_partition": b.compute} {
			write(dir+"/"+name, text+"\n")
		}
		for name, text := range c.sys {
			write(dir+"/"+strings.Replace(name, "hwmon/", "hwmon/hwmon3/", 1), text+"\n")
		}
		link(dir, "class/drm/"+card+"/device")
		link(dir, "bus/pci/devices/"+b.pci)
	}
	for _, line := range c.nodes {
		words := strings.Fields(line)
		dir := "class/kfd/kfd/topology/nodes/" + words[0]
		write(dir+"/gpu_id", words[1]+"\n")
		write(dir+"/properties", strings.ReplaceAll(strings.Join(words[3:], "\n"), "=", " ")+"\n")
		write(dir+"/mem_banks/0/properties", "heap_type 1\nsize_in_bytes "+words[2]+"\n")
	}
}

func (s *step) write(t testing.TB, root, pci string) {
	t.Helper()
	if s.revision == "" {
		return
	}
	b := s.file(t)
	testkit.ErrorIf(t, s.size != 0 && len(b) != s.size, "revision %s has %d bytes, the source says %d", s.revision, len(b), s.size)
	must(t, os.WriteFile(filepath.Join(root, "sys/devices", pci, "gpu_metrics"), b, 0o600))
}

// TestCaptures checks that published numbers give the expected values.
func TestCaptures(t *testing.T) {
	for _, c := range captures(t) {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			c.build(t, root)
			c.steps[0].write(t, root, c.boards[0].pci)
			o := mustOpen(t, Options{Root: root, Source: SourceSysfs}, collectortest.Fields())
			c.checkInstances(t, o)
			device := o.sources[0].Devices()[0].ID
			before := map[string]float64{}
			for i := range c.steps {
				c.steps[i].write(t, root, c.boards[0].pci)
				o.sample()
				for _, w := range c.steps[i].wants {
					w.check(t, o, device, before)
				}
				for _, w := range c.steps[len(c.steps)-1].wants {
					before[w.name+w.labels], _ = o.value(device, w.name, w.labels)
				}
			}
		})
	}
}

func (w *wanted) check(t *testing.T, o *opened, device string, before map[string]float64) {
	t.Helper()
	got, ok := o.value(device, w.name, w.labels)
	if !ok {
		got = math.NaN()
	}
	if w.growth {
		got -= before[w.name+w.labels]
	}
	switch w.value {
	case "none":
		testkit.ErrorIf(t, !math.IsNaN(got), "%s{%s} = %v, want no value", w.name, w.labels, got)
		return
	case "implausible": // the session drops it
		d, _, ok := field.ByName(w.name)
		testkit.ErrorIf(t, !ok || got <= d.Max, "%s{%s} = %v, want what is out of the field's range", w.name, w.labels, got)
		return
	}
	want := testkit.Get(strconv.ParseFloat(w.value, 64))(t)
	testkit.ErrorIf(t, !(math.Abs(got-want) <= 1e-9*math.Abs(want)), "%s{%s} = %v, want %v", w.name, w.labels, got, want)
}

// checkInstances compares the partitions: address, number, render node, compute units.
func (c *capture) checkInstances(t *testing.T, o *opened) {
	t.Helper()
	var got []string
	for _, s := range o.sources {
		g := s.(*source).gpu
		for _, i := range g.Instances {
			if len(c.instances) > 0 {
				got = append(got, fmt.Sprintf("%s %d %s %d", g.PCI, i.ID, i.Render, i.Units))
			}
		}
	}
	want := slices.Clone(c.instances)
	slices.Sort(want)
	slices.Sort(got)
	testkit.Equal(t, "instances", want, got)
}
