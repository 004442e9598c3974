package config

import "testing"

func TestDidYouMean(t *testing.T) {
	names := []string{"check", "once", "devices"}
	for in, want := range map[string]string{"chck": " (did you mean check?)", "device": " (did you mean devices?)", "x": "", "everything": "", "": ""} {
		if got := didYouMean(in, names); got != want {
			t.Errorf("didYouMean(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLocalURL(t *testing.T) {
	for address, want := range map[string]string{
		":9400": "http://localhost:9400", "0.0.0.0:9400": "http://localhost:9400", "[::]:9400": "http://localhost:9400",
		"10.0.0.1:1": "http://10.0.0.1:1", "[fe80::1]:80": "http://[fe80::1]:80", "node:9400": "http://node:9400", "127.0.0.1:0": "",
	} {
		if got := LocalURL(address); got != want {
			t.Errorf("LocalURL(%q) = %q, want %q", address, got, want)
		}
	}
}
