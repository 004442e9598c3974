package smi

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNames checks both directory layouts of installed releases, newest first, after the administrator's choice.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	api := API{Sonames: []string{"lib.so.7", "lib.so.5", "lib.so"}, Folders: []string{"lib", "lib64", "share/lib"}}
	files := []string{
		"rocm/lib64/lib.so.5", "rocm/core-10.1/lib/lib.so.7", "rocm/core-10.0/share/lib/lib.so", "rocm-6.10.0/lib/lib.so.7",
		"rocm-6.2.4/lib/lib.so.7", "rocm-6.2.4/lib/lib.so", "rocm-5.7.1/lib/lib.so.5",
	}
	want := slices.Clone(api.Sonames)
	for i, file := range append(files, "rocm-6.10.0/lib/lib.so.7.3.60100", "rocm-7.0.0/lib/another.so") {
		path := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if i < len(files) {
			want = append(want, path)
		}
	}
	if got := api.names("", dir); !slices.Equal(got, want) {
		t.Errorf("names\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := api.names("", filepath.Join(dir, "nowhere")); !slices.Equal(got, api.Sonames) {
		t.Errorf("without releases: %q", got)
	}
	if got := api.names("/some/lib.so", dir); !slices.Equal(got, []string{"/some/lib.so"}) {
		t.Errorf("named: %q", got)
	}
}

// TestStatus checks that a status has its name from the library's header, and an unknown one its number.
func TestStatus(t *testing.T) {
	l := Library{api: &API{Name: "ROCm SMI", Prefix: "RSMI_STATUS_", Statuses: map[int32]string{8: "INIT_ERROR"}, Functions: []Function{{Name: "rsmi_init"}}}}
	for code, want := range map[int32]string{8: "call rsmi_init: RSMI_STATUS_INIT_ERROR [code 8]", 18: "call rsmi_init: ROCm SMI status 18"} {
		if err := l.Failed(0, code); err == nil || err.Error() != want {
			t.Errorf("status %d: %v, want %s", code, err, want)
		}
	}
	if err := l.Failed(0, Success); err != nil {
		t.Errorf("success is %v", err)
	}
}
