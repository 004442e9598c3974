package config

import (
	"fmt"
	"testing"

	"warpgauge/internal/testkit"
)

func TestDidYouMean(t *testing.T) {
	names := []string{"check", "once", "devices"}
	for in, want := range map[string]string{"chck": " (did you mean check?)", "device": " (did you mean devices?)", "x": "", "everything": "", "": ""} {
		testkit.Equal(t, fmt.Sprintf("didYouMean(%q)", in), want, didYouMean(in, names))
	}
}

func TestLocalURL(t *testing.T) {
	for address, want := range map[string]string{
		":9400": "http://localhost:9400", "0.0.0.0:9400": "http://localhost:9400", "[::]:9400": "http://localhost:9400",
		"10.0.0.1:1": "http://10.0.0.1:1", "[fe80::1]:80": "http://[fe80::1]:80", "node:9400": "http://node:9400", "127.0.0.1:0": "",
	} {
		testkit.Equal(t, fmt.Sprintf("LocalURL(%q)", address), want, LocalURL(address))
	}
}
