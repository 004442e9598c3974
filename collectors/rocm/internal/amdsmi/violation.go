package amdsmi

import (
	"encoding/binary"
	"errors"
	"math"

	"warpgauge/collectors/rocm/internal/native"
)

// Violations of a GPU, in percent of a tenth of a second; NaN: unknown.
type Violations struct {
	Board [5]float64                               // PROCHOT, PPT, socket, voltage regulators, HBM
	XCC   [XCCViolations][Partitions][XCCs]float64 // power, thermal, low utilisation, any
}

// Dimensions of Violations.
const (
	XCCViolations = 4
	Partitions    = 8
	XCCs          = 8
)

// Violations reads the violation status of a GPU. The library waits a tenth of a second for it.
func (l *Library) Violations(pci string) (*Violations, error) {
	if why := l.refusal(fnViolation); why != "" {
		return nil, errors.New(why)
	}
	known := layoutOf(l.Version())
	if known == nil { // the library reported no version
		return nil, native.Status{API: &api, Code: native.Unsupported}
	}
	b, err := l.structure(fnViolation, pci, known.violation)
	if err != nil {
		return nil, err
	}
	v := new(Violations)
	for i := range v.Board {
		v.Board[i] = percent(b[known.percent+8*i:])
	}
	next := known.xccPercent
	for i := range v.XCC {
		for p := range v.XCC[i] {
			for x := range v.XCC[i][p] {
				v.XCC[i][p][x] = math.NaN()
				if known.xccPercent > 0 {
					v.XCC[i][p][x] = percent(b[next:])
					next += 8
				}
			}
		}
	}
	return v, nil
}

// percent returns NaN for values above 1000; all bits set means "not available".
func percent(b []byte) float64 {
	v := binary.NativeEndian.Uint64(b)
	if v > 1000 { // a share of 100 is expected
		return math.NaN()
	}
	return float64(v)
}
