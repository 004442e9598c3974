package nvml

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// elfProblem says why a file can be no library of this process, or "". Names
// that the loader looks up are left to it. The loader's own words are no help
// here: for a library of another machine it says that there is no such file.
func elfProblem(path string) string {
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
	defer func() { _ = f.Close() }() // was only read
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return "it is a directory; name the file in it, or give the directory as --nvml-driver-root"
	}
	return machineProblem(f)
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
