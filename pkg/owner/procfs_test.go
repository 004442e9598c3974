package owner

import (
	"strconv"
	"strings"
	"testing"
)

func TestStart(t *testing.T) {
	f := func(stat string, want uint64, wantOK bool) {
		t.Helper()
		if got, ok := parseStart([]byte(stat)); ok != wantOK || ok && got != want {
			t.Errorf("%q: got %d, %v, want %d, %v", stat, got, ok, want, wantOK)
		}
	}
	const after = " S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 "
	f("1 (systemd)"+after+"17 171798691 3 18446744073709551615 1 1", 17, true)
	f("4194304 (a b) c) (d)"+after+"123456789 1", 123456789, true)
	f("7 (python3)"+after+"0\n", 0, true)
	f("7 (python3)"+after+"99999999999999999999 1", 0, false)
	f("7 (python3)"+after+"x", 0, false)
	f("7 (python3)"+after, 0, false)
	f("7 (python3) S 1 1", 0, false)
	f("7 python3", 0, false)
	f("", 0, false)
}

func FuzzStart(f *testing.F) {
	f.Add([]byte("1 (systemd) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 17 171798691 3"))
	f.Add([]byte("1 (a) b) S 1"))
	f.Fuzz(func(t *testing.T, stat []byte) {
		if start, ok := parseStart(stat); ok && !strings.Contains(string(stat), strconv.FormatUint(start, 10)) {
			t.Errorf("%q: %d is not in it", stat, start)
		}
	})
}
