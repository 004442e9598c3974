package sysfs

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// model is a board's market name: what its inventory memory says, which only
// server boards have, else what libdrm's or PCI's list of names says for its
// ids, where one is installed, else the ids.
func (r *Reader) model(dir string, device uint16) string {
	if name := text(dir, "product_name"); name != "" {
		return name
	}
	revision := number(dir, "revision")
	for _, list := range []struct {
		path string
		find func(io.Reader) string
	}{
		{"usr/share/libdrm/amdgpu.ids", func(f io.Reader) string { return findAMDGPU(f, device, revision) }},
		{"opt/amdgpu/share/libdrm/amdgpu.ids", func(f io.Reader) string { return findAMDGPU(f, device, revision) }},
		{"usr/share/misc/pci.ids", func(f io.Reader) string { return findPCI(f, device) }},
		{"usr/share/hwdata/pci.ids", func(f io.Reader) string { return findPCI(f, device) }},
	} {
		if name := lookUp(filepath.Join("/", r.o.Root, list.path), list.find); name != "" {
			return name
		}
	}
	return fmt.Sprintf("AMD GPU 1002:%04x", device)
}

func lookUp(path string, find func(io.Reader) string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // read only
	return strings.ToValidUTF8(find(f), "")
}

// findAMDGPU looks in libdrm's list: lines "744C,	C8,	AMD Radeon RX 7900 XTX".
func findAMDGPU(list io.Reader, device uint16, revision uint64) string {
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		id, rest, ok1 := strings.Cut(lines.Text(), ",")
		rev, name, ok2 := strings.Cut(rest, ",")
		if ok1 && ok2 && sameHex(id, uint64(device)) && sameHex(rev, revision) {
			return strings.TrimSpace(name)
		}
	}
	return ""
}

// findPCI looks in the list of PCI ids: below the vendor's line, which starts
// with its number, are lines of a tab, the device's number and its name.
func findPCI(list io.Reader, device uint16) string {
	lines := bufio.NewScanner(list)
	ours := false
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "" || line[0] == '#':
		case line[0] != '\t':
			if ours {
				return ""
			}
			ours = strings.HasPrefix(line, "1002 ")
		case ours && len(line) > 5 && line[1] != '\t' && sameHex(line[1:5], uint64(device)):
			return strings.TrimSpace(line[5:])
		}
	}
	return ""
}

func sameHex(text string, v uint64) bool {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
	return err == nil && n == v
}
