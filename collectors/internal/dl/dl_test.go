package dl

import (
	"testing"
)

func TestOpenRefusesWhatIsNoName(t *testing.T) {
	for _, names := range [][]string{nil, {}, {""}, {"libm.so.6", ""}, {"libm.so.6\x00.bak"}} {
		l, err := Open(names)
		if l != nil || err == nil {
			t.Errorf("Open(%q) = %v, %v, want an error", names, l, err)
		}
	}
}

func TestAbsent(t *testing.T) {
	f := func(a Attempt, want bool) {
		t.Helper()
		if got := a.Absent(); got != want {
			t.Errorf("%+v.Absent() = %v, want %v", a, got, want)
		}
	}
	f(Attempt{"libx.so", "libx.so: cannot open shared object file: No such file or directory"}, true)
	f(Attempt{"libx.so", "libdependency.so: cannot open shared object file: No such file or directory"}, false)
	f(Attempt{"libx.so", "libx.so: cannot open shared object file: Permission denied"}, false)
	f(Attempt{"libx.so", "libx.so: wrong ELF class: ELFCLASS32"}, false)
	f(Attempt{"libx.so", ""}, false)
}

func TestOpenErrorNamesTheLibraryOnce(t *testing.T) {
	e := &OpenError{Attempts: []Attempt{
		{"liba.so", "liba.so: cannot open"},
		{"libb.so", "libdependency.so: cannot open"},
	}}
	const want = "load library: liba.so: cannot open; libb.so: libdependency.so: cannot open"
	if e.Error() != want {
		t.Errorf("got  %q\nwant %q", e.Error(), want)
	}
}
