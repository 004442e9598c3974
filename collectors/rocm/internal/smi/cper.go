package smi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Severity of a record, in AMD's numbering (amdsmi_cper_sev_t, cper_error_severity in the kernel).
type Severity uint32

// Severities.
const (
	Uncorrected Severity = iota // but not fatal
	Fatal
	Corrected
	Severities
)

func (s Severity) String() string {
	return [...]string{"non_fatal_uncorrected", "fatal", "non_fatal_corrected"}[s]
}

// Sizes and offsets of a record in UEFI's appendix N, without padding.
const (
	headerSize  = 128
	sectionSize = 72 // descriptor of a section

	atSections  = 10
	atSeverity  = 12
	atValid     = 16
	atLength    = 20
	atTimestamp = 24

	validTimestamp = 1 << 1
)

// record is one record of a ring.
type record struct {
	severity Severity
	time     time.Time // zero if missing or invalid
	bytes    []byte
}

// split splits consecutive records. It stops at the first invalid record, because it cannot find the next one.
func split(b []byte) (out []record, err error) {
	for len(b) > 0 {
		r, err := parse(b)
		if err != nil {
			return out, fmt.Errorf("record %d: %w", len(out)+1, err)
		}
		if b = b[len(r.bytes):]; r.severity < Severities {
			out = append(out, r)
		}
	}
	return out, nil
}

func parse(b []byte) (record, error) {
	if len(b) < headerSize || !bytes.HasPrefix(b, []byte("CPER")) || binary.LittleEndian.Uint32(b[6:]) != 0xffffffff {
		return record{}, errors.New("no header")
	}
	length := binary.LittleEndian.Uint32(b[atLength:])
	if length < headerSize || uint64(length) > uint64(len(b)) {
		return record{}, fmt.Errorf("%d bytes, but only %d available", length, len(b))
	}
	r := record{severity: Severity(binary.LittleEndian.Uint32(b[atSeverity:])), bytes: b[:length]}
	if binary.LittleEndian.Uint32(b[atValid:])&validTimestamp != 0 {
		r.time = timestamp(b[atTimestamp:])
	}
	return r, nil
}

// timestamp returns the time of a record: seconds, minutes, hours, a flag, day, month, year of the century and the
// century, in UTC. The kernel writes plain numbers (amdgpu_cper_get_timestamp) instead of UEFI's decimal digits. It
// ignores the century, because AMD's other products count it from 1.
func timestamp(b []byte) time.Time {
	second, minute, hour, day, month, year := int(b[0]), int(b[1]), int(b[2]), int(b[4]), int(b[5]), int(b[6])
	t := time.Date(2000+year, time.Month(month), day, hour, minute, second, 0, time.UTC)
	if year > 99 || t.Second() != second || t.Minute() != minute || t.Hour() != hour || t.Day() != day || int(t.Month()) != month {
		return time.Time{}
	}
	return t
}

// sound reports whether a record's sections lie within it. The library's decoder does not check that.
func (r *record) sound() bool {
	n := int(binary.LittleEndian.Uint16(r.bytes[atSections:]))
	if len(r.bytes) > maxRecord || headerSize+n*sectionSize > len(r.bytes) {
		return false
	}
	for i := range n {
		d := r.bytes[headerSize+i*sectionSize:]
		begin, size := uint64(binary.LittleEndian.Uint32(d)), uint64(binary.LittleEndian.Uint32(d[4:]))
		if begin+size > uint64(len(r.bytes)) {
			return false
		}
	}
	return true
}

// MaxAFIDs is the maximum number of field IDs per record; no record of the kernel has more.
const MaxAFIDs = 12

// Records summarises the driver's records of one severity for a GPU.
type Records struct {
	Count int
	Time  time.Time // of the newest record; zero if unknown
	AFIDs []uint64  // of the newest record
}

// Records reads the records of a GPU, by severity. If reading fails midway, it returns the records before the error. It
// returns nil if the first call fails.
func (l *AMD) Records(pci string, now time.Time) (*[Severities]Records, error) {
	if why := l.refusal(fnRecords); why != "" {
		return nil, errors.New(why)
	}
	out := new([Severities]Records)
	var err error
	var newest [Severities]*record
	for cursor, answer := uint64(0), 0; answer < maxAnswers; answer++ {
		m := l.memory
		m.number = [8]uint64{ringSize, maxHeaders, cursor}
		s := l.Call(fnRecords, uint64(l.gpus[pci]), 1<<Uncorrected|1<<Fatal|1<<Corrected,
			Address(&m.records), Address(&m.number[0]), Address(&m.headers), Address(&m.number[1]), Address(&m.number[2]))
		if s != Success && s != moreData {
			return nil, l.Failed(fnRecords, s)
		}
		found, bad := split(m.records[:min(m.number[0], ringSize)])
		for i := range found {
			r := &found[i]
			if r.time.After(now.Add(maxAhead)) {
				r.time = time.Time{}
			}
			out[r.severity].Count++
			// Records are sorted by time. A record without a time does not replace a record with a time.
			if n := newest[r.severity]; n == nil || n.time.IsZero() || !r.time.Before(n.time) {
				r.bytes = bytes.Clone(r.bytes)
				newest[r.severity] = r
			}
		}
		if err = errors.Join(err, bad); s == Success || bad != nil || m.number[2] <= cursor {
			break
		}
		cursor = m.number[2]
	}
	for i, r := range newest {
		if r != nil {
			out[i].Time, out[i].AFIDs = r.time, l.afids(r)
		}
	}
	return out, err
}

// maxAhead is how far in the future a record's time may be, because clocks are adjusted.
const maxAhead = time.Minute

// afids returns AMD's field IDs of a record, or nil if the record is not sound.
func (l *AMD) afids(r *record) []uint64 {
	m := l.memory
	if !r.sound() || !l.Has(fnAFIDs) {
		return nil
	}
	clear(m.record[copy(m.record[:], r.bytes):])
	m.number[0] = uint64(len(m.afids)) / 2
	if l.Call(fnAFIDs, Address(&m.record), uint64(len(r.bytes)), Address(&m.afids), Address(&m.number[0])) != Success {
		return nil
	}
	n := min(uint32(m.number[0]), MaxAFIDs) // some releases report more than they write
	return append([]uint64(nil), m.afids[:n]...)
}
