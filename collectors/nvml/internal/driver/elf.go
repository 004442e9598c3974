package driver

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// Problem returns why this process cannot load a file, or "". Names without a slash are left to the loader. The
// loader's own messages do not help here: for a library of another architecture it says that there is no such file.
func Problem(path string) string {
	if !strings.Contains(path, "/") {
		return ""
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "it does not exist"
	case errors.Is(err, os.ErrPermission):
		return fmt.Sprintf("no permission to read it (%s; this process is uid %d)", ownership(path), os.Geteuid())
	case err != nil:
		return err.Error()
	}
	defer func() { _ = f.Close() }() // only read
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return "it is a directory; name the file in it, or give the directory as --nvml-driver-root"
	}
	if text := machineProblem(f); text != "" {
		return text
	}
	return truncated(path)
}

func machineProblem(r io.ReaderAt) string {
	f, err := elf.NewFile(r)
	if err != nil {
		return "it is no library (" + err.Error() + ")"
	}
	want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	switch {
	case f.Class != elf.ELFCLASS64:
		return fmt.Sprintf("it is a 32-bit library (%s), and this is a 64-bit process", f.Machine)
	case want != elf.EM_NONE && f.Machine != want:
		return fmt.Sprintf("it is a library for another processor (%s), and this process needs one for %s", f.Machine, want)
	case f.Type != elf.ET_DYN:
		return fmt.Sprintf("it is no library (%s)", f.Type)
	}
	return ""
}

// truncated reports in words whether a library file is shorter than its headers say, or "". The loader maps such a
// file, and the process gets SIGBUS at its end.
func truncated(path string) string {
	st, err := os.Stat(path)
	if err != nil {
		return ""
	}
	f, err := elf.Open(path)
	if err != nil { // for example, a section table beyond the end
		return "it is no library, or truncated (" + err.Error() + ")"
	}
	defer func() { _ = f.Close() }() // only read
	size := uint64(st.Size())
	within := func(offset, length uint64) bool { return offset <= size && length <= size-offset }
	whole := true
	for _, p := range f.Progs {
		whole = whole && within(p.Off, p.Filesz)
	}
	for _, s := range f.Sections {
		whole = whole && (s.Type == elf.SHT_NOBITS || within(s.Offset, s.FileSize))
	}
	if !whole {
		return fmt.Sprintf("it is truncated: its headers describe more than the %d bytes that it has; install the driver again", size)
	}
	return ""
}
