package nvmltest

import (
	"embed"
	"io/fs"
	"path/filepath"

	"warpgauge/collectors/internal/simulated"
)

//go:embed cuda/cuda.c
var cudaSource embed.FS

// WriteCUDA puts a simulated libcuda.so.1 next to the library of a Node that Write
// has made. What multiplies through it raises the load of the Node's GPUs.
func (n *Node) WriteCUDA() (string, error) {
	source, err := fs.Sub(cudaSource, "cuda")
	if err != nil {
		return "", err
	}
	cuda := &simulated.Library{Name: "CUDA", File: "libcuda.so.1", Sources: source}
	built, err := cuda.Build(nil)
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(n.lib.Path), cuda.File)
	return path, n.lib.Share(path, built)
}
