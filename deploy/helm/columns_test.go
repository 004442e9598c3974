package helm_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/util/jsonpath"
)

// TestColumns: kubectl's own path reader finds the columns of docs/remote.md in a pod that the exporter has annotated.
func TestColumns(t *testing.T) {
	m := regexp.MustCompile(`custom-columns=(\S+)`).FindSubmatch(read(t, "../../docs/remote.md"))
	if m == nil {
		t.Fatal("docs/remote.md has no columns")
	}
	pod := map[string]any{"spec": map[string]any{"nodeName": "n1"}, "metadata": map[string]any{"annotations": map[string]any{
		"warpgauge/list-hash": "ab12", "warpgauge/list-origin": "https://lists.example/h100.csv",
		"warpgauge/list-applied": "2026-05-01T18:00:00Z", "warpgauge/list-error": "line 3",
	}}}
	var got []string
	for column := range strings.SplitSeq(string(m[1]), ",") {
		title, path, _ := strings.Cut(column, ":")
		j := jsonpath.New(title)
		var out bytes.Buffer
		if err := j.Parse("{" + path + "}"); err != nil {
			t.Fatal(err)
		}
		if err := j.Execute(&out, pod); err != nil {
			t.Fatal(err)
		}
		got = append(got, title+"="+out.String())
	}
	want := "NODE=n1 LIST=ab12 FROM=https://lists.example/h100.csv SINCE=2026-05-01T18:00:00Z ERROR=line 3"
	if strings.Join(got, " ") != want {
		t.Errorf("columns %q, want %q", got, want)
	}
}
