package isolation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A frame is a header of 16 bytes, little-endian, and a payload:
//
//	0  magic "wgch"
//	4  protocol version, 1 byte
//	5  message type, 1 byte
//	6  zero, 2 bytes
//	8  length of the payload
//	12 CRC-32C of bytes 0…11 and the payload
const (
	headerBytes = 16
	frameMagic  = 0x6863_6777
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFrame is what a peer gone mad causes.
var errFrame = errors.New("bad frame")

// kind is the type of a message. Unknown ones are skipped.
type kind uint8

const (
	kindHello kind = iota + 1
	kindSetup
	kindSource
	kindMemory
	kindService
	kindRelease
	kindStatus
	kindLog
	kindMetrics
	kindList
	kindReloaded
	kindStop
	kindAgain   // to the child: sample everything once more
	kindSampled // from it: that is done
)

// appendFrame appends a frame to b.
func appendFrame(b []byte, k kind, payload []byte) ([]byte, error) {
	if len(payload) > maxFrame {
		return b, fmt.Errorf("send message %d: %d bytes are more than %d", k, len(payload), maxFrame)
	}
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, frameMagic)
	b = append(b, protocolNumber, byte(k), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	sum := crc32.Update(crc32.Checksum(b[at:], castagnoli), castagnoli, payload)
	b = binary.LittleEndian.AppendUint32(b, sum)
	return append(b, payload...), nil
}

// frames reads frames. It belongs to one goroutine.
type frames struct {
	r   io.Reader
	buf []byte
}

// next returns the type and the payload of the next frame. The payload is
// overwritten by the next call. The length is checked before memory is taken,
// and memory is taken as bytes arrive, so a header alone costs nothing.
func (f *frames) next() (kind, []byte, error) {
	var h [headerBytes]byte
	if _, err := io.ReadFull(f.r, h[:]); err != nil {
		return 0, nil, err
	}
	length := binary.LittleEndian.Uint32(h[8:])
	switch {
	case binary.LittleEndian.Uint32(h[:]) != frameMagic:
		return 0, nil, fmt.Errorf("%w: no magic", errFrame)
	case h[4] != protocolNumber:
		return 0, nil, fmt.Errorf("%w: protocol %d, want %d", errFrame, h[4], protocolNumber)
	case length > maxFrame:
		return 0, nil, fmt.Errorf("%w: %d bytes are more than %d", errFrame, length, maxFrame)
	}
	if err := f.fill(int(length)); err != nil {
		return 0, nil, err
	}
	sum := crc32.Update(crc32.Checksum(h[:12], castagnoli), castagnoli, f.buf)
	if sum != binary.LittleEndian.Uint32(h[12:]) {
		return 0, nil, fmt.Errorf("%w: wrong checksum", errFrame)
	}
	return kind(h[5]), f.buf, nil
}

// fill reads n bytes into buf, which grows by steps.
func (f *frames) fill(n int) error {
	const step = 64 << 10
	f.buf = f.buf[:0]
	for len(f.buf) < n {
		at := len(f.buf)
		more := min(n-at, step)
		if cap(f.buf) < at+more {
			f.buf = append(f.buf, make([]byte, more)...)
		} else {
			f.buf = f.buf[:at+more]
		}
		if _, err := io.ReadFull(f.r, f.buf[at:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}
