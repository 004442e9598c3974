// Package pci reads addresses of PCI functions, and finds the GPUs that are on the PCI bus.
package pci

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"warpgauge/pkg/field"
)

// Board is a GPU or an NVSwitch on the bus.
type Board struct {
	Address Address
	Vendor  *field.Vendor
	Switch  bool
	Driver  string // kernel module that it is bound to; "": none
	Slot    string // name of its slot, or of the slot of a bridge above it; "": not known
	// Port is the port that it is connected to, which reports errors of the connection as its
	// own. The zero Address: not known.
	Port    Address
	Virtual bool // a function that is there for virtual machines
	Display bool // the machine's display at boot
	// Hidden says that the driver was told to leave it out, or that this container has no device
	// node of it.
	Hidden bool

	name string // of its directory
}

// maxBoards bounds what a scan returns.
const maxBoards = 256

// Bus reads the devices of the PCI bus.
type Bus struct{ root string }

// NewBus returns a Bus of the sysfs and procfs below root; "" is "/".
func NewBus(root string) Bus { return Bus{filepath.Join("/", root)} }

// Boards lists the GPUs and switches of known vendors, in the order of their addresses. It returns an error
// if the bus is absent or cannot be read.
func (b Bus) Boards() ([]Board, error) {
	devices := filepath.Join(b.root, "sys/bus/pci/devices")
	entries, err := os.ReadDir(devices)
	if err != nil {
		return nil, err
	}
	var out []Board
	for _, e := range entries {
		a, ok := Parse(e.Name())
		if !ok || len(out) == maxBoards {
			continue
		}
		dir := filepath.Join(devices, e.Name())
		class := text(dir, "class") // most devices are told by it
		if !strings.HasPrefix(class, "0x03") && !strings.HasPrefix(class, "0x1200") && !strings.HasPrefix(class, "0x0680") {
			continue
		}
		board := Board{name: e.Name(), Address: a, Vendor: field.VendorByPCI(text(dir, "vendor")), Switch: strings.HasPrefix(class, "0x0680")}
		if board.Vendor == nil || board.Switch && !board.Vendor.Switches {
			continue
		}
		b.describe(&board, dir)
		out = append(out, board)
	}
	slots := b.slots()
	for i := range out {
		b.place(&out[i], slots)
	}
	slices.SortFunc(out, func(a, b Board) int { return strings.Compare(a.Address.String(), b.Address.String()) })
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

// slots returns the names of slots by the address of the board in each.
func (b Bus) slots() map[Address]string {
	dir := filepath.Join(b.root, "sys/bus/pci/slots")
	entries, _ := os.ReadDir(dir) // none: the firmware names no slots
	out := make(map[Address]string, len(entries))
	for _, e := range entries {
		if a, ok := Parse(text(filepath.Join(dir, e.Name()), "address")); ok {
			out[a] = e.Name()
		}
	}
	return out
}

// place finds the slot and the port of a board by the devices that it is behind.
func (b Bus) place(board *Board, slots map[Address]string) {
	dir, err := filepath.EvalSymlinks(filepath.Join(b.root, "sys/bus/pci/devices", board.name))
	if err != nil {
		board.Slot = slots[board.Address.Board()]
		return
	}
	for a, ok := Parse(filepath.Base(dir)); ok; a, ok = Parse(filepath.Base(dir)) {
		if board.Slot == "" {
			board.Slot = slots[a.Board()]
		}
		if a != board.Address && board.Port == (Address{}) {
			board.Port = a
		}
		dir = filepath.Dir(dir)
	}
}

// Module reports whether the driver's kernel module of a vendor is loaded.
func (b Bus) Module(v *field.Vendor) bool {
	_, err := os.Stat(filepath.Join(b.root, "sys/module", v.Module))
	return err == nil
}

// text is a small file without white space around it; "" if it cannot be read.
func text(dir, name string) string {
	t, _ := os.ReadFile(filepath.Join(dir, name)) // of sysfs and procfs: at most a page
	return strings.TrimSpace(string(t))
}
