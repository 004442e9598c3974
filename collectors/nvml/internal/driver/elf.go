package driver

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Problem returns why this process cannot load a file, or "". Names without a slash are left to the loader. The
// loader's own messages do not help here: for a library of another architecture it says that there is no such file.
func Problem(path string) string {
	if !strings.Contains(path, "/") {
		file := loaderFile(path)
		if problem := truncated(file); problem != "" {
			return "the loader finds " + file + " for it: " + problem
		}
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
	defer func() { _ = f.Close() }() // was only read
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
	defer func() { _ = f.Close() }() // was only read
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

// loaderFile returns the file that the dynamic loader uses for a name without a slash: the first for this architecture
// in LD_LIBRARY_PATH, the loader's cache and its default directories. It returns "" if there is none.
func loaderFile(name string) string {
	var files []string
	for _, dir := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		files = append(files, filepath.Join(dir, name))
	}
	if cache, err := os.ReadFile("/etc/ld.so.cache"); err == nil {
		files = append(files, cached(cache, name)...)
	}
	for _, dir := range []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib"} {
		files = append(files, filepath.Join(dir, name))
	}
	for _, path := range files {
		f, err := os.Open(path) //nolint:gosec // where the loader would look, too
		if err != nil {
			continue
		}
		problem := machineProblem(f)
		_ = f.Close() // was only read
		if problem == "" || strings.HasPrefix(problem, "it is no library") {
			return path
		}
	}
	return ""
}

// cached returns the files of a name in the loader's cache, in its order: struct cache_file_new of glibc's
// sysdeps/generic/dl-cache.h.
func cached(cache []byte, name string) (files []string) {
	const (
		header, entry = 48, 24
		key, value    = 4, 8 // in an entry: offsets of two strings
	)
	at := bytes.Index(cache, []byte("glibc-ld.so.cache1.1"))
	if at < 0 || len(cache) < at+header {
		return nil
	}
	cache = cache[at:]
	str := func(offset uint32) string {
		if uint64(offset) >= uint64(len(cache)) {
			return ""
		}
		s, _, _ := bytes.Cut(cache[offset:], []byte{0})
		return string(s)
	}
	n := binary.NativeEndian.Uint32(cache[20:])
	for e := cache[header:]; n > 0 && len(e) >= entry; e, n = e[entry:], n-1 {
		if str(binary.NativeEndian.Uint32(e[key:])) == name {
			files = append(files, str(binary.NativeEndian.Uint32(e[value:])))
		}
	}
	return files
}
