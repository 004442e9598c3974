package driver

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"warpgauge/internal/testkit/tree"
)

// elfHeader returns the beginning of a file with a class, a machine and a type.
func elfHeader(t *testing.T, class elf.Class, machine elf.Machine, typ elf.Type) string {
	t.Helper()
	var b bytes.Buffer
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	var header any = elf.Header64{Ident: ident, Type: uint16(typ), Machine: uint16(machine), Version: 1, Ehsize: 64, Phentsize: 56, Shentsize: 64}
	if class == elf.ELFCLASS32 {
		header = elf.Header32{Ident: ident, Type: uint16(typ), Machine: uint16(machine), Version: 1, Ehsize: 52, Phentsize: 32, Shentsize: 40}
	}
	if err := binary.Write(&b, binary.LittleEndian, header); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestELFProblem(t *testing.T) {
	ours, theirs := elf.EM_X86_64, elf.EM_AARCH64
	if runtime.GOARCH == "arm64" {
		ours, theirs = theirs, ours
	}
	root := tree.Write(t, map[string]string{
		"good":   elfHeader(t, elf.ELFCLASS64, ours, elf.ET_DYN),
		"small":  elfHeader(t, elf.ELFCLASS32, elf.EM_386, elf.ET_DYN),
		"other":  elfHeader(t, elf.ELFCLASS64, theirs, elf.ET_DYN),
		"object": elfHeader(t, elf.ELFCLASS64, ours, elf.ET_REL),
		"text":   "INPUT(libnvidia-ml.so.1)\n",
		"empty":  "",
		"dir/":   "",
	})
	f := func(name, want string) {
		t.Helper()
		got := Problem(filepath.Join(root, name))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	f("good", "")
	f("small", "it is a 32-bit library (EM_386), and this is a 64-bit process")
	f("other", "it is a library for another processor ("+theirs.String()+")")
	f("object", "it is no library (ET_REL)")
	f("text", "it is no library (bad magic number")
	f("empty", "it is no library (EOF)")
	f("dir", "--nvml-driver-root")
	f("nothing", "it does not exist")
	if got := Problem(Soname); got != "" {
		t.Errorf("a name that the loader looks up: %q", got)
	}
	if err := os.Chmod(filepath.Join(root, "good"), 0); err != nil {
		t.Fatal(err)
	}
	for dir := root; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755) // for the other user
	}
	withoutRights(t, func() { f("good", "no permission to read it (mode 0000") })
}

// TestTruncated checks that the first part of a library is not accepted as a library.
func TestTruncated(t *testing.T) {
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "lib.so")
	for _, size := range []int{len(text), len(text) / 2, len(text) - 1, 4096, 64, 10} {
		if err := os.WriteFile(file, text[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		if got := truncated(file); (got == "") != (size == len(text)) {
			t.Errorf("%d of %d bytes: %q", size, len(text), got)
		}
	}
}
