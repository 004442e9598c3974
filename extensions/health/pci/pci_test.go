package pci

import (
	"os"
	"path/filepath"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

var must = testkit.Must

func TestAddresses(t *testing.T) {
	f := func(text string, want Address, ok bool) {
		t.Helper()
		if got, is := Parse(text); got != want || is != ok {
			t.Errorf("Parse(%q) is %v, %v, want %v, %v", text, got, is, want, ok)
		}
	}
	h := Address{Bus: 0x3b}
	f("0000:3b:00.0", h, true)
	f("00000000:3B:00.0", h, true)
	f("PCI:0000:3b:00", h, true)
	f("0000:3b:00", h, true)
	f("3b:00.0", h, true)
	f("10000:e1:1f.7", Address{0x10000, 0xe1, 0x1f, 7}, true)
	f("0008:01:00.0", Address{8, 1, 0, 0}, true) // on a Grace system
	for _, text := range []string{"", "3b", "3b:00", "0000:3b", "0000:3b:20.0", "0000:3b:00.8", "0000:3b:00.0x", "000000000:3b:00.0", "0000:3bb:00.0", "nvidia0", "0000:3b:00.", "::.", "0000:00:00"} {
		f(text, Address{}, false)
	}
	for _, a := range []Address{h, {0x10000, 0xe1, 0x1f, 7}, {8, 0xff, 0, 1}} {
		f(a.String(), a, true)
		if got, ok := Find("amdgpu " + a.String() + ": x"); !ok || got != a {
			t.Errorf("Find of %v is %v, %v", a, got, ok)
		}
	}
	for _, text := range []string{"", "12:30:45 x", "GPU-3b:00.0", "a::b:c:d:e:f", "::::", "0000:3b", "deadbeef"} {
		if a, ok := Find(text); ok {
			t.Errorf("Find(%q) is %v, want none", text, a)
		}
	}
	if a, ok := Find("at 14:03:07 nvidia 0000:3b:00.0: x 0000:86:00.0"); !ok || a != h {
		t.Errorf("Find is %v, %v, want %v", a, ok, h)
	}
}

func FuzzAddresses(f *testing.F) {
	f.Add("NVRM: Xid (PCI:0000:3b:00): 79")
	f.Add("0000:00:00")
	f.Fuzz(func(t *testing.T, text string) {
		if a, ok := Parse(text); ok {
			if again, ok := Parse(a.String()); !ok || again != a {
				t.Errorf("Parse(%q) is %v, which is parsed as %v", text, a, again)
			}
		}
		Find(text)
	})
}

// machine is a simulated sysfs and procfs.
type machine struct {
	t    testing.TB
	root string
}

func (m machine) file(name, content string) {
	m.t.Helper()
	path := filepath.Join(m.root, name)
	must(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(m.t, os.WriteFile(path, []byte(content+"\n"), 0o644))
}

// add adds a device by its path below /sys/devices, vendor, class and driver.
func (m machine) add(path, vendor, class, driver string) {
	m.t.Helper()
	dir := "sys/devices/" + path
	m.file(dir+"/vendor", "0x"+vendor)
	m.file(dir+"/class", "0x"+class)
	m.bind(path, driver)
	link := filepath.Join(m.root, "sys/bus/pci/devices", filepath.Base(path))
	must(m.t, os.MkdirAll(filepath.Dir(link), 0o755))
	must(m.t, os.Symlink("../../../devices/"+path, link))
}

func (m machine) bind(path, driver string) {
	m.t.Helper()
	link := filepath.Join(m.root, "sys/devices", path, "driver")
	_ = os.Remove(link) // the link may be absent
	if driver != "" {
		must(m.t, os.Symlink("../../../../bus/pci/drivers/"+driver, link))
		m.file("sys/module/"+driver+"/refcnt", "1")
	}
}

const (
	first  = "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0" // behind a PCIe switch in a slot
	second = "pci0000:37/0000:37:01.0/0000:3b:00.0"                           // in its own slot
	third  = "pci0000:48/0000:48:01.0/0000:4c:00.0"
)

// newMachine returns a node with three H100, and devices that are not GPUs.
func newMachine(t testing.TB) machine {
	m := machine{t, t.TempDir()}
	m.add(first, "10de", "030200", "nvidia")
	m.add(second, "10de", "030200", "nvidia")
	m.add(third, "10de", "030200", "nvidia")
	m.add("pci0000:05/0000:05:00.0", "10de", "068000", "nvidia-nvswitch")
	m.add("pci0000:00/0000:00:1f.0", "8086", "060100", "lpc_ich")
	m.add("pci0000:03/0000:03:00.0", "1a03", "030000", "ast") // the BMC's display
	m.add("pci0000:37/0000:37:01.1", "8086", "060400", "pcieport")
	m.file("sys/bus/pci/slots/5/address", "0000:16:00")
	m.file("sys/bus/pci/slots/7-1/address", "0000:3b:00")
	m.file("sys/bus/pci/slots/junk/address", "x")
	return m
}

func TestBoards(t *testing.T) {
	m := newMachine(t)
	m.add("pci0000:c0/0000:c1:00.0", "1002", "120000", "amdgpu")   // MI300X
	m.add("pci0000:c0/0000:c2:00.0", "1002", "038000", "vfio-pci") // MI210
	m.add("pci0000:00/0000:00:02.0", "1002", "030000", "")         // an APU's display
	m.file("sys/devices/pci0000:00/0000:00:02.0/boot_vga", "1")
	m.add("pci0000:d0/0000:d1:00.4", "10de", "030200", "nvidia") // a virtual function
	m.file("sys/devices/pci0000:d0/0000:d1:00.4/physfn", "")
	m.file("proc/driver/nvidia/gpus/0000:4c:00.0/information", "Model: \t\t NVIDIA H100\nGPU Excluded:\t Yes")
	m.file("proc/driver/nvidia/gpus/0000:18:00.0/information", "Device Minor:\t 3\nGPU Excluded:\t No")
	m.file("dev/nvidia3", "")
	m.file("proc/driver/nvidia/gpus/0000:3b:00.0/information", "Device Minor:\t 4\nGPU Excluded:\t No") // hidden from the container
	got := testkit.Get(NewBus(m.root).Boards())(t)
	want := []Board{
		{Address: Address{Bus: 0, Device: 2}, Vendor: field.VendorAMD, Display: true},
		{Address: Address{Bus: 0x05}, Vendor: field.VendorNVIDIA, Switch: true, Driver: "nvidia-nvswitch"},
		{Address: Address{Bus: 0x18}, Vendor: field.VendorNVIDIA, Driver: "nvidia", Slot: "5", Port: Address{Bus: 0x17}},
		{Address: Address{Bus: 0x3b}, Vendor: field.VendorNVIDIA, Driver: "nvidia", Slot: "7-1", Port: Address{Bus: 0x37, Device: 1}, Hidden: true},
		{Address: Address{Bus: 0x4c}, Vendor: field.VendorNVIDIA, Driver: "nvidia", Port: Address{Bus: 0x48, Device: 1}, Hidden: true},
		{Address: Address{Bus: 0xc1}, Vendor: field.VendorAMD, Driver: "amdgpu"},
		{Address: Address{Bus: 0xc2}, Vendor: field.VendorAMD, Driver: "vfio-pci"},
		{Address: Address{Bus: 0xd1, Function: 4}, Vendor: field.VendorNVIDIA, Driver: "nvidia", Virtual: true},
	}
	testkit.Equal(t, "boards", want, got)
	testkit.ErrorIf(t, !NewBus(m.root).Module(field.VendorNVIDIA) || NewBus(t.TempDir()).Module(field.VendorNVIDIA), "a module that is loaded is not there, or another is")
	if _, err := NewBus(t.TempDir()).Boards(); err == nil {
		t.Error("no error of a machine without a bus")
	}
}
