package pci

import (
	"fmt"
	"strconv"
	"strings"
)

// Address is that of a PCI function. The zero Address is a bridge of the processor's, never a
// GPU's.
type Address struct {
	Domain                uint32
	Bus, Device, Function uint8
}

// Parse reads an address in any usual form: 0000:3b:00.0, 00000000:3B:00.0, PCI:0000:3b:00, 3b:00.0.
func Parse(text string) (Address, bool) {
	text, _ = strings.CutPrefix(text, "PCI:")
	a, rest, ok := read(text)
	if !ok || rest != "" {
		return Address{}, false
	}
	return a, true
}

// Find returns the first address in a text that has a domain: such as the one in
// "nvidia 0000:3b:00.0: …".
func Find(text string) (Address, bool) {
	for i := 0; i+len("0000:00:00") <= len(text); i++ {
		at := strings.IndexByte(text[i:], ':')
		if at < 0 {
			break
		}
		at += i
		from := at
		for from > i && isHex(text[from-1]) {
			from--
		}
		if at-from >= 4 {
			if a, rest, ok := read(text[from:]); ok && (rest == "" || !isHex(rest[0])) {
				return a, true
			}
		}
		i = at
	}
	return Address{}, false
}

// read reads the address that a text begins with, and returns what follows it.
func read(text string) (a Address, rest string, ok bool) {
	first, rest, ok1 := hex(text, 8)
	second, rest, ok2 := after(rest, ':', 2)
	if !ok1 || !ok2 {
		return Address{}, text, false
	}
	domain, bus, device := first, second, uint64(0)
	if strings.HasPrefix(rest, ":") {
		device, rest, ok = after(rest, ':', 2)
	} else { // without a domain
		domain, bus, device, ok = 0, first, second, strings.HasPrefix(rest, ".")
	}
	function := uint64(0)
	if n, tail, dotted := after(rest, '.', 1); dotted {
		function, rest = n, tail
	}
	if !ok || bus > 0xff || device > 0x1f || function > 7 {
		return Address{}, text, false
	}
	return Address{uint32(domain), uint8(bus), uint8(device), uint8(function)}, rest, true
}

// after reads a number that follows a mark.
func after(text string, mark byte, digits int) (uint64, string, bool) {
	if text == "" || text[0] != mark {
		return 0, text, false
	}
	return hex(text[1:], digits)
}

// hex reads a number of at most so many digits.
func hex(text string, digits int) (uint64, string, bool) {
	n := 0
	for n < len(text) && n < digits && isHex(text[n]) {
		n++
	}
	v, err := strconv.ParseUint(text[:n], 16, 32)
	return v, text[n:], err == nil
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// Board is the address without the function: that of the whole board, by which drivers name it
// in the kernel's log.
func (a Address) Board() Address { a.Function = 0; return a }

// String is the form of the label pci_bus_id.
func (a Address) String() string {
	return fmt.Sprintf("%08X:%02X:%02X.%X", a.Domain, a.Bus, a.Device, a.Function)
}
