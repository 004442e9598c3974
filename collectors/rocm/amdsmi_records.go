package rocm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// severity is a record's severity in AMD's numbering (amdsmi_cper_sev_t, cper_error_severity in the kernel).
type severity uint32

// Severities.
const (
	uncorrected severity = iota // but not fatal
	fatal
	corrected
	severities
)

func (s severity) String() string {
	return [...]string{"non_fatal_uncorrected", "fatal", "non_fatal_corrected"}[s]
}

// Sizes and offsets of a record in UEFI's appendix N, without padding.
const (
	cperHeader  = 128
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
	severity severity
	time     time.Time // zero if missing or invalid
	bytes    []byte
}

// splitRecords splits consecutive records. It stops at the first invalid record, because it cannot find the next one.
func splitRecords(b []byte) (out []record, err error) {
	for len(b) > 0 {
		r, err := parseRecord(b)
		if err != nil {
			return out, fmt.Errorf("record %d: %w", len(out)+1, err)
		}
		if b = b[len(r.bytes):]; r.severity < severities {
			out = append(out, r)
		}
	}
	return out, nil
}

func parseRecord(b []byte) (record, error) {
	if len(b) < cperHeader || !bytes.HasPrefix(b, []byte("CPER")) || binary.LittleEndian.Uint32(b[6:]) != 0xffffffff {
		return record{}, errors.New("no header")
	}
	length := binary.LittleEndian.Uint32(b[atLength:])
	if length < cperHeader || uint64(length) > uint64(len(b)) {
		return record{}, fmt.Errorf("%d bytes, but only %d available", length, len(b))
	}
	r := record{severity: severity(binary.LittleEndian.Uint32(b[atSeverity:])), bytes: b[:length]}
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
	if len(r.bytes) > maxRecord || cperHeader+n*sectionSize > len(r.bytes) {
		return false
	}
	for i := range n {
		d := r.bytes[cperHeader+i*sectionSize:]
		begin, size := uint64(binary.LittleEndian.Uint32(d)), uint64(binary.LittleEndian.Uint32(d[4:]))
		if begin+size > uint64(len(r.bytes)) {
			return false
		}
	}
	return true
}

// maxAFIDs is the maximum number of field IDs per record; no record of the kernel has more.
const maxAFIDs = 12

// recordSum summarises the driver's records of one severity for a GPU.
type recordSum struct {
	Count int
	Time  time.Time // of the newest record; zero if unknown
	AFIDs []uint64  // of the newest record
}

// Records reads the records of a GPU, by severity. If reading fails midway, it returns the records before the error. It
// returns nil if the first call fails.
func (l *amdSMI) Records(pci string, now time.Time) (*[severities]recordSum, error) {
	if why := l.refusal(fnRecords); why != "" {
		return nil, errors.New(why)
	}
	out := new([severities]recordSum)
	var err error
	var newest [severities]*record
	for cursor, answer := uint64(0), 0; answer < maxAnswers; answer++ {
		m := l.memory
		m.number = [8]uint64{ringSize, maxHeaders, cursor}
		s := l.Call(fnRecords, uint64(l.gpus[pci]), 1<<uncorrected|1<<fatal|1<<corrected,
			addressOf(&m.records), addressOf(&m.number[0]), addressOf(&m.headers), addressOf(&m.number[1]), addressOf(&m.number[2]))
		if s != smiSuccess && s != moreData {
			return nil, l.Failed(fnRecords, s)
		}
		found, bad := splitRecords(m.records[:min(m.number[0], ringSize)])
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
		if err = errors.Join(err, bad); s == smiSuccess || bad != nil || m.number[2] <= cursor {
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
func (l *amdSMI) afids(r *record) []uint64 {
	m := l.memory
	if !r.sound() || !l.Has(fnAFIDs) {
		return nil
	}
	clear(m.record[copy(m.record[:], r.bytes):])
	m.number[0] = uint64(len(m.afids)) / 2
	if l.Call(fnAFIDs, addressOf(&m.record), uint64(len(r.bytes)), addressOf(&m.afids), addressOf(&m.number[0])) != smiSuccess {
		return nil
	}
	n := min(uint32(m.number[0]), maxAFIDs) // some releases report more than they write
	return append([]uint64(nil), m.afids[:n]...)
}
