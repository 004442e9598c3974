// Package pci parses PCI addresses and finds the GPUs on the PCI bus.
package pci

import (
	"os"
	"path/filepath"
	"strings"

	"warpgauge/pkg/field"
)

// Board is a GPU or NVSwitch on the bus.
type Board struct {
	Address Address
	Vendor  *field.Vendor
	Switch  bool
	Driver  string // bound kernel module, or ""
	Slot    string // name of its slot, or of the slot of a bridge above it, or ""
	// Port is the upstream port, which reports errors of the connection as its own. It is zero if unknown.
	Port    Address
	Virtual bool // a virtual function
	Display bool // the machine's boot display
	// Hidden means that the driver was configured to ignore the board, or that this container lacks its device node.
	Hidden bool
}

// maxBoards bounds the result of a scan.
const maxBoards = 256

// Bus reads the devices of the PCI bus.
type Bus struct{ root string }

// NewBus returns a Bus for the sysfs and procfs below root; "" means "/".
func NewBus(root string) Bus { return Bus{filepath.Join("/", root)} }

// Boards lists the GPUs and switches of known vendors, ordered by the kernel's name. It returns an error if the bus
// is absent or unreadable.
func (b Bus) Boards() ([]Board, error) {
	devices := filepath.Join(b.root, "sys/bus/pci/devices")
	entries, err := os.ReadDir(devices)
	if err != nil {
		return nil, err
	}
	var out []Board
	slots := b.slots()
	for _, e := range entries {
		a, ok := Parse(e.Name())
		if !ok || len(out) == maxBoards {
			continue
		}
		dir := filepath.Join(devices, e.Name())
		class := text(dir, "class") // excludes most devices
		if !strings.HasPrefix(class, "0x03") && !strings.HasPrefix(class, "0x1200") && !strings.HasPrefix(class, "0x0680") {
			continue
		}
		board := Board{Address: a, Vendor: field.VendorByPCI(text(dir, "vendor")), Switch: strings.HasPrefix(class, "0x0680")}
		if board.Vendor == nil || board.Switch && !board.Vendor.Switches {
			continue
		}
		b.describe(&board, dir)
		board.place(dir, slots)
		out = append(out, board)
	}
	return out, nil
}

func (b Bus) describe(board *Board, dir string) {
	if to, err := os.Readlink(filepath.Join(dir, "driver")); err == nil {
		board.Driver = filepath.Base(to)
	}
	_, err := os.Lstat(filepath.Join(dir, "physfn"))
	board.Virtual = err == nil
	board.Display = text(dir, "boot_vga") == "1"
	if v := board.Vendor; v.About != "" {
		about := text(filepath.Join(b.root, "proc", v.About, filepath.Base(dir)), "information")
		for l := range strings.Lines(about) {
			name, value, _ := strings.Cut(l, ":")
			switch value = strings.TrimSpace(value); name {
			case "GPU Excluded", "Blacklisted":
				board.Hidden = board.Hidden || value == "Yes"
			case "Device Minor":
				_, err := os.Lstat(filepath.Join(b.root, "dev", v.Node+filepath.Base(value)))
				board.Hidden = board.Hidden || err != nil
			}
		}
	}
}

// slots returns the slot names by board address.
func (b Bus) slots() map[Address]string {
	dir := filepath.Join(b.root, "sys/bus/pci/slots")
	entries, _ := os.ReadDir(dir) // without it, the firmware names no slots
	out := make(map[Address]string, len(entries))
	for _, e := range entries {
		if a, ok := Parse(text(filepath.Join(dir, e.Name()), "address")); ok {
			out[a] = e.Name()
		}
	}
	return out
}

// place sets the slot and the port of a board from the bridges above it.
func (b *Board) place(dir string, slots map[Address]string) {
	if path, err := filepath.EvalSymlinks(dir); err == nil { // else only its own slot is known
		dir = path
	}
	for a, ok := Parse(filepath.Base(dir)); ok; a, ok = Parse(filepath.Base(dir)) {
		if b.Slot == "" {
			b.Slot = slots[a.Board()]
		}
		if a != b.Address && b.Port == (Address{}) {
			b.Port = a
		}
		dir = filepath.Dir(dir)
	}
}

// Module reports whether the driver's kernel module of a vendor is loaded.
func (b Bus) Module(v *field.Vendor) bool {
	_, err := os.Stat(filepath.Join(b.root, "sys/module", v.Module))
	return err == nil
}

// text returns the trimmed content of a small file, or "" if it is unreadable.
func text(dir, name string) string {
	t, _ := os.ReadFile(filepath.Join(dir, name)) // sysfs and procfs files have at most a page
	return strings.TrimSpace(string(t))
}
