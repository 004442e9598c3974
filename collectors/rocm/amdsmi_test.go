package rocm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit"
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
		records, err := splitRecords(b)
		sum := 0
		for _, r := range records {
			testkit.FatalIf(t, len(r.bytes) < cperHeader || r.severity >= severities || !bytes.Contains(b, r.bytes), "record %+v", r)
			testkit.FatalIf(t, !r.time.IsZero() && (r.time.Year() < 2000 || r.time.Year() > 2099), "time %v", r.time)
			if r.sound() && (len(r.bytes) > maxRecord || cperHeader+sectionSize*int(uint16(r.bytes[atSections])|uint16(r.bytes[atSections+1])<<8) > len(r.bytes)) {
				t.Fatal("sections beyond the record")
			}
			sum += len(r.bytes)
		}
		testkit.FatalIf(t, sum > len(b) || err == nil && len(b) > 0 && sum == 0 && len(records) > 0, "%d bytes of records in %d", sum, len(b))
	})
}

// TestSectionsWithinTheRecord checks that sound rejects sections outside the record, because the library's decoder does
// not check bounds.
func TestSectionsWithinTheRecord(t *testing.T) {
	f := func(what string, want bool, change func(b []byte)) {
		t.Helper()
		b := rocmtest.CPER(rocmtest.CPERFatal, time.Date(2026, 5, 27, 17, 59, 9, 0, time.UTC))
		change(b)
		testkit.Equal(t, what+": sound", want, (&record{bytes: b}).sound())
	}
	le := binary.LittleEndian
	const begin, size = cperHeader, cperHeader + 4 // of the first section, in its descriptor
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
		testkit.Equal(t, fmt.Sprintf("%v", b), want, got)
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

// TestNames checks both directory amdLayouts of installed releases, newest first, after the administrator's choice.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	api := libraryAPI{Sonames: []string{"lib.so.7", "lib.so.5", "lib.so"}, Folders: []string{"lib", "lib64", "share/lib"}}
	files := []string{
		"rocm/lib64/lib.so.5", "rocm/core-10.1/lib/lib.so.7", "rocm/core-10.0/share/lib/lib.so", "rocm-6.10.0/lib/lib.so.7",
		"rocm-6.2.4/lib/lib.so.7", "rocm-6.2.4/lib/lib.so", "rocm-5.7.1/lib/lib.so.5",
	}
	want := slices.Clone(api.Sonames)
	for i, file := range append(files, "rocm-6.10.0/lib/lib.so.7.3.60100", "rocm-7.0.0/lib/another.so") {
		path := filepath.Join(dir, file)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, nil, 0o600)))
		if i < len(files) {
			want = append(want, path)
		}
	}
	got := api.names("", dir)
	testkit.ErrorIf(t, !slices.Equal(got, want), "names\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	testkit.Equal(t, "without releases", api.Sonames, api.names("", filepath.Join(dir, "nowhere")))
	got = api.names("/some/lib.so", dir)
	testkit.ErrorIf(t, !slices.Equal(got, []string{"/some/lib.so"}), "named: %q", got)
}
