package rocm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSMINames(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{
		"rocm-5.7.1/lib/librocm_smi64.so.5",
		"rocm-6.2.4/lib/librocm_smi64.so.7", "rocm-6.2.4/lib/librocm_smi64.so",
		"rocm-6.10.0/lib/librocm_smi64.so.7",
		"rocm-6.10.0/lib/librocm_smi64.so.7.3.60100", // what the link points to
		"rocm/lib64/librocm_smi64.so.6",
		"rocm-7.0.0/lib/libamd_smi.so",
	} {
		path := filepath.Join(dir, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := func(named string, want ...string) {
		t.Helper()
		got := libraryNames(named, dir, smiSonames(), "lib", "lib64")
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], dir+"/")
		}
		if !slices.Equal(got, want) {
			t.Errorf("names for %q:\n got %q\nwant %q", named, got, want)
		}
	}
	f("",
		"librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5", "librocm_smi64.so.1", "librocm_smi64.so",
		"rocm/lib64/librocm_smi64.so.6",
		"rocm-6.10.0/lib/librocm_smi64.so.7",
		"rocm-6.2.4/lib/librocm_smi64.so.7", "rocm-6.2.4/lib/librocm_smi64.so",
		"rocm-5.7.1/lib/librocm_smi64.so.5",
	)
	f("/some/librocm_smi64.so", "/some/librocm_smi64.so")
	if got := libraryNames("", filepath.Join(dir, "nowhere"), smiSonames(), "lib"); !slices.Equal(got, smiSonames()) {
		t.Errorf("without /opt: %q", got)
	}
}

func TestSplitPCIID(t *testing.T) {
	f := func(id uint64, pci string, partition int) {
		t.Helper()
		if p, n := splitPCIID(id); p != pci || n != partition {
			t.Errorf("splitPCIID(%#x) = %s, %d, want %s, %d", id, p, n, pci, partition)
		}
	}
	f(0x4100, "0000:41:00.0", 0)
	f(0x0001_0000_c3f9, "0001:c3:1f.1", 0)
	f(0x3000_4100, "0000:41:00.0", 3)
	f(0xffff_ffff_f000_0000, "ffffffff:00:00.0", 15)
}

// A status has the name of rocm_smi.h, also one of newer releases.
func TestSMIStatusText(t *testing.T) {
	f := func(s smiStatus, want string) {
		t.Helper()
		if got := s.String(); got != want {
			t.Errorf("status %d: %q, want %q", int(s), got, want)
		}
	}
	f(2, "RSMI_STATUS_NOT_SUPPORTED [code 2]")
	f(16, "RSMI_STATUS_BUSY [code 16]")
	f(17, "RSMI_STATUS_REFCOUNT_OVERFLOW [code 17]")
	f(18, "ROCm SMI status 18")
	if err := smiFailed(smiInit, smiSuccess); err != nil {
		t.Errorf("success is %v", err)
	}
	if got := smiFailed(smiInit, 8).Error(); got != "call rsmi_init: RSMI_STATUS_INIT_ERROR [code 8]" {
		t.Errorf("got %q", got)
	}
}
