//go:build linux && cgo

package nvml

import "warpgauge/pkg/dl"

// linkStates are the NVLinks of a GPU as bit masks.
type linkStates struct {
	active uint64
	known  uint64 // of the others nothing is known, or there are none
}

// linkQuestion returns what asks for the state of a GPU's NVLinks, and false where
// the library has no answer. The handle is an nvmlDevice_t.
func linkQuestion(l *dl.Library, gpu uintptr) (ask func() linkStates, supported bool) {
	f, err := l.Lookup("nvmlDeviceGetNvLinkState")
	if err != nil {
		return nil, false
	}
	return func() linkStates { return askLinks(f, gpu) }, true
}

// p2pQuestion returns what asks whether GPU a reaches b over NVLink, and false
// where the library has no answer. The handles are nvmlDevice_t.
func p2pQuestion(l *dl.Library, a, b uintptr) (ask func() (status int, ok bool), supported bool) {
	f, err := l.Lookup("nvmlDeviceGetP2PStatus")
	if err != nil {
		return nil, false
	}
	return func() (int, bool) {
		status := askP2P(f, a, b)
		return min(status, lastLinkStatus), status >= 0 // what is not known yet is "Unknown"
	}, true
}
