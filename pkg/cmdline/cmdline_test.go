package cmdline

import "testing"

func TestDidYouMean(t *testing.T) {
	names := []string{"check", "once", "devices"}
	for in, want := range map[string]string{"chck": " (did you mean check?)", "device": " (did you mean devices?)", "x": "", "everything": "", "": ""} {
		if got := didYouMean(in, names); got != want {
			t.Errorf("didYouMean(%q) = %q, want %q", in, got, want)
		}
	}
}
