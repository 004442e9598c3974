package sysfs

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"warpgauge/internal/testkit"
)

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "value")
	write := func(text string) {
		t.Helper()
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	now := time.Unix(1_800_000_000, 0)
	file := NewFile(path)
	defer file.Close()
	f := func(want string, sentinel error) {
		t.Helper()
		var buf [16]byte
		text, err := file.Read(buf[:], 0, now)
		testkit.ErrorIf(t, string(text) != want || !errors.Is(err, sentinel), "Read = %q, %v, want %q, %v", text, err, want, sentinel)
	}
	f("", ErrAbsent)
	write("42\n")
	f("", ErrAbsent) // not tried again so soon
	now = now.Add(absentFor)
	f("42\n", nil)
	write("")
	f("", nil)
	write(strings.Repeat("7", 17))
	f(strings.Repeat("7", 16), nil)
	must(t, os.Truncate(path, 0))
	must(t, os.Remove(path))
	f("", ErrGone)
	f("", ErrAbsent)
	write("44")
	now = now.Add(absentFor)
	f("44", nil)
	file.Forget()
	file.Close()
	f("44", nil)
}

// TestFileErrors checks that system errors are returned, except those that mean a removed device.
func TestFileErrors(t *testing.T) {
	dir := t.TempDir()
	socket := testkit.Get(new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "socket")))(t)
	defer socket.Close()
	for name, want := range map[string]error{
		dir:                                  syscall.EISDIR,
		filepath.Join(dir, "socket"):         ErrAbsent, // open answers ENXIO
		filepath.Join(dir, "socket", "file"): ErrAbsent, // ENOTDIR
		strings.Repeat("x", 5000):            syscall.ENAMETOOLONG,
	} {
		file := NewFile(name)
		var buf [16]byte
		text, err := file.Read(buf[:], 0, time.Time{})
		testkit.ErrorIf(t, text != nil || !errors.Is(err, want), "Read(%.20q) = %q, %v, want %v", name, text, err, want)
		file.Close()
	}
	for err, want := range map[error]bool{
		syscall.ENODEV: true, syscall.ENXIO: true, syscall.ESTALE: true,
		syscall.EIO: false, syscall.EPERM: false, syscall.EBUSY: false, syscall.EOPNOTSUPP: false, syscall.EINVAL: false, syscall.ENODATA: false,
	} {
		testkit.ErrorIf(t, removedBy(err) != want, "removedBy(%v) = %t", err, !want)
	}
}
