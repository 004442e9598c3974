package programtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"warpgauge/internal/testkit/failing"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	f := func(name, required, path, skipped, failed string) {
		t.Helper()
		t.Setenv("WARPGAUGE_REQUIRE", required)
		var got string
		r := failing.Run(t, func(tb testing.TB) { got = Find(tb, name) })
		if got != path || !begins(r.Reason, skipped) || !begins(r.Message, failed) {
			t.Errorf("%s, required %q: path %q, skipped %q, failed %q", name, required, got, r.Reason, r.Message)
		}
	}
	f("there", "", there, "", "")
	f("there", "there", there, "", "")
	f("nowhere", "", "", `needs nowhere: exec: "nowhere": `, "")
	f("nowhere", "nowhere-else,there", "", `needs nowhere: exec: "nowhere": `, "")
	f("nowhere", "there,nowhere", "", "", `nowhere is required by WARPGAUGE_REQUIRE but missing: exec: "nowhere": `)
}

// begins reports whether a text begins so, or whether there is none and shall be none.
func begins(text, prefix string) bool {
	return strings.HasPrefix(text, prefix) && (text == "") == (prefix == "")
}

// A skip is one line; a failure has all that was written.
func TestMissing(t *testing.T) {
	missing := func(tb testing.TB) {
		Missing(tb, "a cluster", "%v\n%s", fmt.Errorf("exit status %d", 1), "no right\r\nto mount\n")
	}
	t.Setenv("WARPGAUGE_REQUIRE", "")
	if r := failing.Run(t, missing); r.Reason != "needs a cluster: exit status 1; no right; to mount" || r.Message != "" {
		t.Errorf("skipped %q, failed %q", r.Reason, r.Message)
	}
	t.Setenv("WARPGAUGE_REQUIRE", "prometheus,a cluster")
	want := "a cluster is required by WARPGAUGE_REQUIRE but missing: exit status 1\nno right\r\nto mount\n"
	if r := failing.Run(t, missing); r.Message != want || r.Reason != "" {
		t.Errorf("skipped %q, failed %q, want %q", r.Reason, r.Message, want)
	}
}
