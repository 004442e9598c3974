package main

import (
	"strconv"
	"strings"
)

// words that nvidia-smi writes for numbers.
var words = map[string]float64{
	"enabled": 1, "disabled": 0, "active": 1, "not active": 0, "yes": 1, "no": 0,
	"default": 0, "prohibited": 1, "exclusive_process": 2, "exclusive process": 2, // as DCGM counts compute modes
	"reset": 1, "gpu reset": 1, "reboot": 2, "node reboot": 2, "drain p2p": 3, "drain and reset": 4, // recovery
	"valid": 1, "invalid": 0, // the InfoROM
	"none": 0, "pass-through": 1, "passthrough": 1, "vgpu": 2, "host vgpu": 3, "host vsga": 4, // virtualisation
}

// numberOf reads "70.12 W", "0x0000000000000004", "Enabled", "P0" or "640 bank(s)".
// It returns false for other texts, such as "N/A" and "[Not Supported]".
func numberOf(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	if v, ok := words[strings.ToLower(text)]; ok {
		return v, true
	}
	first, _, _ := strings.Cut(text, " ")
	if hex, ok := strings.CutPrefix(first, "0x"); ok {
		v, err := strconv.ParseUint(hex, 16, 64)
		return float64(v), err == nil
	}
	if p, ok := strings.CutPrefix(first, "P"); ok {
		first = p
	}
	first = strings.TrimSuffix(first, "x") // a width
	v, err := strconv.ParseFloat(first, 64)
	return v, err == nil
}

// absent reports whether nvidia-smi says that there is no value.
func absent(text string) bool {
	switch strings.Trim(strings.ToLower(strings.TrimSpace(text)), "[]") {
	case "", "n/a", "not supported", "not available", "unknown error", "insufficient permissions", "requested functionality has been deprecated":
		return true
	}
	return false
}
