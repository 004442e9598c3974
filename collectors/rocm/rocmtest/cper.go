package rocmtest

import (
	"encoding/binary"
	"time"
)

// Severities of CPER, with the values of the kernel's cper_error_severity.
const (
	CPERUncorrected = iota
	CPERFatal
	CPERCorrected
)

// CPER returns a record with one section like amdgpu's (amdgpu_cper.c): its time has plain numbers, in UTC.
func CPER(severity uint32, at time.Time) []byte {
	const header, section, body = 128, 72, 272
	b := make([]byte, header+section+body)
	copy(b, "CPER")
	le := binary.LittleEndian
	le.PutUint16(b[4:], 0x100)
	le.PutUint32(b[6:], 0xffffffff)
	le.PutUint16(b[10:], 1) // sections
	le.PutUint32(b[12:], severity)
	le.PutUint32(b[16:], 0b11) // with platform id and time
	le.PutUint32(b[20:], uint32(len(b)))
	at = at.UTC()
	copy(b[24:], []byte{
		byte(at.Second()), byte(at.Minute()), byte(at.Hour()), 0, byte(at.Day()), byte(at.Month()), byte(at.Year() % 100), byte(at.Year() / 100),
	})
	copy(b[32:], "0x1002:0x74A1")
	copy(b[64:], "amdgpu")
	le.PutUint32(b[header:], header+section)
	le.PutUint32(b[header+4:], body)
	return b
}
