package nvml

import (
	"errors"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/tree"

	"warpgauge/collectors/internal/dl"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

var must = testkit.Must

// libc returns the C library's file, which every process has loaded.
func libc(t *testing.T) string {
	t.Helper()
	l, err := dl.Open([]string{"libc.so.6"})
	if err != nil {
		return "" // without cgo
	}
	defer l.Close()
	return l.Path()
}

func noVariables(string) string { return "" }

// listOf parses a counters CSV.
func listOf(t testing.TB, csv string) field.List {
	t.Helper()
	list, problems, err := field.Parse(strings.NewReader(csv), field.ParseOptions{})
	testkit.FatalIf(t, err != nil, "%v %v", err, problems)
	return list
}

// temperature is a list of one field.
func temperature(t *testing.T) field.List { return listOf(t, "DCGM_FI_DEV_GPU_TEMP, gauge, t\n") }

// TestNothingToRead checks that Open with an empty list does not load the library.
func TestNothingToRead(t *testing.T) {
	_, err := New(Options{Library: "/nonexistent"}).Open(t.Context(), field.List{})
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrNothingToRead) && !errors.Is(err, collector.ErrNotBuiltIn), "got %v, want %v", err, collector.ErrNothingToRead)
}

func TestOpenSaysWhatThereIs(t *testing.T) {
	if nvmltest.OwnProcess(t) { // a process without a library
		return
	}
	const version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
	f := func(o Options, files map[string]string, want string) {
		t.Helper()
		o.Root = tree.Write(t, files)
		o.Library = strings.ReplaceAll(o.Library, "ROOT", o.Root)
		o.Getenv = noVariables
		_, err := New(o).Open(t.Context(), temperature(t))
		if errors.Is(err, collector.ErrNotBuiltIn) {
			testkit.ErrorIf(t, !strings.Contains(err.Error(), "without cgo"), "got %v, want it to name cgo", err)
			return
		}
		testkit.ErrorIf(t, !errors.Is(err, collector.ErrNotLoaded), "got %v, want it to wrap %v", err, collector.ErrNotLoaded)
		testkit.Equal(t, "error", want, strings.ReplaceAll(err.Error(), o.Root, ""))
	}
	const prefix = "open NVML: library or driver not found: "
	driver := map[string]string{"proc/driver/nvidia/version": version}
	f(Options{Library: "libwarpgauge-no-such.so.1"}, nil,
		prefix+"--nvml-library: the loader finds no libwarpgauge-no-such.so.1; nothing else is tried; no kernel driver is loaded (/proc/driver/nvidia/version is missing)")
	f(Options{Library: "ROOT/nvml.so"}, driver,
		prefix+"--nvml-library: /nvml.so cannot be used: it does not exist; nothing else is tried; the kernel driver 550.54.15 is loaded")
	f(Options{Library: "ROOT/proc"}, driver,
		prefix+"--nvml-library: /proc cannot be used: it is a directory; name the file in it, or give the directory as --nvml-driver-root; nothing else is tried; the kernel driver 550.54.15 is loaded")
	f(Options{Library: "ROOT/proc/driver/nvidia/version"}, driver,
		prefix+"--nvml-library: /proc/driver/nvidia/version cannot be used: it is not a library (bad magic number '[78 86 82 77]' in record at byte 0x0); nothing else is tried; the kernel driver 550.54.15 is loaded")
	f(Options{Library: "libc.so.6"}, driver,
		prefix+"--nvml-library: "+libc(t)+" cannot be used: it lacks nvmlInit_v2: use the NVML of a supported driver (470 or newer); nothing else is tried; the kernel driver 550.54.15 is loaded")
}
