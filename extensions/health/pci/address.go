package pci

import (
	"fmt"
	"regexp"
	"strconv"
)

// Address is the address of a PCI function. The zero Address belongs to a bridge in the processor, never to a GPU.
type Address struct {
	Domain                uint32
	Bus, Device, Function uint8
}

const form = `([0-9a-fA-F]{2}):([01][0-9a-fA-F])(?:\.([0-7]))?`

var (
	whole  = regexp.MustCompile(`^(?:PCI:)?(?:([0-9a-fA-F]{4,8}):)?` + form + `$`)
	within = regexp.MustCompile(`(?:^|[^0-9a-fA-F])([0-9a-fA-F]{4,8}):` + form + `(?:[^0-9a-fA-F]|$)`)
)

// Parse parses an address in any usual form: 0000:3b:00.0, 00000000:3B:00.0, PCI:0000:3b:00, 3b:00.0.
func Parse(text string) (Address, bool) { return fromMatch(whole.FindStringSubmatch(text)) }

// Find returns the first address with a domain in a text such as "nvidia 0000:3b:00.0: …".
func Find(text string) (Address, bool) { return fromMatch(within.FindStringSubmatch(text)) }

func fromMatch(m []string) (a Address, ok bool) {
	if m == nil || m[1]+m[4] == "" { // 3b:00 alone is ambiguous
		return a, false
	}
	hex := func(s string) uint64 {
		n, _ := strconv.ParseUint(s, 16, 32) // the pattern ensures valid digits; "" gives 0
		return n
	}
	a = Address{uint32(hex(m[1])), uint8(hex(m[2])), uint8(hex(m[3])), uint8(hex(m[4]))}
	return a, a != (Address{})
}

// Board returns the board's address, which has no function. Drivers log this form.
func (a Address) Board() Address { a.Function = 0; return a }

// String returns the form of the label pci_bus_id, or "" for the zero Address.
func (a Address) String() string {
	if a == (Address{}) {
		return ""
	}
	return fmt.Sprintf("%08X:%02X:%02X.%X", a.Domain, a.Bus, a.Device, a.Function)
}
