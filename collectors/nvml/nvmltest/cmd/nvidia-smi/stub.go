//go:build !linux || !cgo

// Nvidia-smi needs cgo.
package main

import "os"

func main() {
	_, _ = os.Stderr.WriteString("this simulated nvidia-smi was built without cgo\n")
	os.Exit(2)
}
