package smi

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"warpgauge/collectors/rocm/rocmtest"
)

// FuzzRecords checks that records lie within any buffer, one after the other, and that sound records have sections within
// the record.
func FuzzRecords(f *testing.F) {
	at := time.Date(2026, 5, 27, 17, 59, 9, 0, time.UTC)
	fatal := rocmtest.CPER(rocmtest.CPERFatal, at)
	f.Add(fatal)
	f.Add(append(bytes.Clone(fatal), fatal[:200]...))
	f.Add([]byte("CPER"))
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := split(b)
		sum := 0
		for _, r := range records {
			if len(r.bytes) < headerSize || r.severity >= Severities || !bytes.Contains(b, r.bytes) {
				t.Fatalf("record %+v", r)
			}
			if !r.time.IsZero() && (r.time.Year() < 2000 || r.time.Year() > 2099) {
				t.Fatalf("time %v", r.time)
			}
			if r.sound() && (len(r.bytes) > maxRecord || headerSize+sectionSize*int(uint16(r.bytes[atSections])|uint16(r.bytes[atSections+1])<<8) > len(r.bytes)) {
				t.Fatal("sections beyond the record")
			}
			sum += len(r.bytes)
		}
		if sum > len(b) || err == nil && len(b) > 0 && sum == 0 && len(records) > 0 {
			t.Fatalf("%d bytes of records in %d", sum, len(b))
		}
	})
}

// TestSectionsWithinTheRecord checks that sound rejects sections outside the record, because the library's decoder does
// not check bounds.
func TestSectionsWithinTheRecord(t *testing.T) {
	f := func(what string, want bool, change func(b []byte)) {
		t.Helper()
		b := rocmtest.CPER(rocmtest.CPERFatal, time.Date(2026, 5, 27, 17, 59, 9, 0, time.UTC))
		change(b)
		if got := (&record{bytes: b}).sound(); got != want {
			t.Errorf("%s: sound is %v, want %v", what, got, want)
		}
	}
	le := binary.LittleEndian
	const begin, size = headerSize, headerSize + 4 // of the first section, in its descriptor
	f("one section up to the end", true, func([]byte) {})
	f("a section one byte too long", false, func(b []byte) { le.PutUint32(b[size:], le.Uint32(b[size:])+1) })
	f("a section that begins behind the end", false, func(b []byte) { le.PutUint32(b[begin:], uint32(len(b))+1); le.PutUint32(b[size:], 0) })
	f("a sum beyond 32 bits", false, func(b []byte) { le.PutUint32(b[begin:], 1<<31); le.PutUint32(b[size:], 1<<31) })
	f("descriptors beyond the end", false, func(b []byte) { le.PutUint16(b[atSections:], 5) })
	f("no section", true, func(b []byte) { le.PutUint16(b[atSections:], 0) })
}

func TestTimestamp(t *testing.T) {
	f := func(b [8]byte, want string) {
		t.Helper()
		got := ""
		if at := timestamp(b[:]); !at.IsZero() {
			got = at.Format(time.RFC3339)
		}
		if got != want {
			t.Errorf("%v is %q, want %q", b, got, want)
		}
	}
	f([8]byte{9, 59, 17, 0, 27, 5, 26, 20}, "2026-05-27T17:59:09Z")
	f([8]byte{9, 59, 17, 0, 27, 5, 26, 21}, "2026-05-27T17:59:09Z") // the century counted from 1
	f([8]byte{9, 59, 17, 1, 27, 5, 26, 0}, "2026-05-27T17:59:09Z")
	f([8]byte{9, 59, 17, 0, 31, 2, 26, 20}, "")
	f([8]byte{9, 59, 17, 0, 0, 5, 26, 20}, "")
	f([8]byte{9, 59, 17, 0, 27, 13, 26, 20}, "")
	f([8]byte{60, 59, 17, 0, 27, 5, 26, 20}, "")
	f([8]byte{9, 59, 24, 0, 27, 5, 26, 20}, "")
	f([8]byte{9, 59, 17, 0, 27, 5, 100, 20}, "")
	f([8]byte{}, "")
}

// TestVersionOf checks the words that releases write.
func TestVersionOf(t *testing.T) {
	for words, want := range map[[4]uint32]string{
		{24, 5, 3, 0}: "24.5", {24, 7, 1, 0}: "24.7", {25, 1, 0, 0}: "25.1", {25, 25, 2, 0}: "25.2", {25, 3, 0, 0}: "25.3",
		{26, 1, 0, 0xffffffff}: "26.1", {27, 0, 0, 0}: "27.0",
	} {
		if got := versionOf(&words).String(); got != want {
			t.Errorf("%v is %s, want %s", words, got, want)
		}
	}
}

// TestLayouts checks that layouts are in order, do not overlap, and lie within their structures.
func TestLayouts(t *testing.T) {
	before := Version{}
	for _, l := range layouts {
		if l.first.compare(before) <= 0 || l.last.compare(l.first) < 0 || l.rocm == "" {
			t.Errorf("%v to %v after %v", l.first, l.last, before)
		}
		before = l.last
		for size, parts := range map[int][]text{
			l.board: {l.number, l.fru, l.manufacturer}, l.vbios: {l.vbiosName, l.vbiosDate, l.partNo},
			l.vram: {l.maker, {l.width, 4}, {l.bandwidth, 8}},
		} {
			for _, p := range parts {
				if p.at < 0 || p.at+p.size > size {
					t.Errorf("%s: %+v is beyond %d bytes", l.rocm, p, size)
				}
			}
		}
		if size := max(l.board, l.vbios, l.vram); size > len(memory{}.info) {
			t.Errorf("%s: %d bytes", l.rocm, size)
		}
	}
}
