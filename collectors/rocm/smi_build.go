package rocm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"slices"
)

// smiBuild is what can be told about a library from its file.
type smiBuild struct {
	// asserts: it was built without NDEBUG. Text in /sys that it does not expect
	// then ends the process, as with Debian's 5.2.3 and https://github.com/ROCm/rocm_smi_lib/issues/182.
	asserts bool
	// threadLocks: it knows the flag for device locks that only its own threads
	// see (6.1.2 and later). Older ones leave locks behind in /dev/shm.
	threadLocks bool
}

// inspectSMI reads the library's file. Where that is not possible it says the
// worst, along with the error.
func inspectSMI(path string) (smiBuild, error) {
	worst := smiBuild{asserts: true}
	text, err := os.ReadFile(path)
	if err != nil {
		return worst, fmt.Errorf("inspect ROCm SMI: %w", err)
	}
	f, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return worst, fmt.Errorf("inspect ROCm SMI %q: %w", path, err)
	}
	imported, err := f.ImportedSymbols()
	if err != nil {
		return worst, fmt.Errorf("inspect ROCm SMI %q: %w", path, err)
	}
	return smiBuild{
		asserts: slices.ContainsFunc(imported, func(s elf.ImportedSymbol) bool { return s.Name == "__assert_fail" }),
		// The variable came with the flag, in one change, and only its name can
		// be seen from outside. The variable itself is left alone: setting it is
		// not safe while other threads read the environment.
		threadLocks: bytes.Contains(text, []byte("RSMI_MUTEX_THREAD_ONLY")),
	}, nil
}
