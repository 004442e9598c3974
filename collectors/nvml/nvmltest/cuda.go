package nvmltest

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed cuda/cuda.c
var cudaSource []byte

// WriteCUDA puts a simulated libcuda.so.1 beside the library of a Node that Write
// has made. What multiplies through it raises the load of the Node's GPUs.
func (n *Node) WriteCUDA() (string, error) {
	dir := filepath.Dir(n.lib.path)
	source, path := filepath.Join(dir, "cuda.c"), filepath.Join(dir, "libcuda.so.1")
	if err := os.WriteFile(source, cudaSource, 0o600); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.Background(), "cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread", "-o", path, source, "-ldl") //nolint:gosec // our own source
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the simulated CUDA: %w\n%s", err, out)
	}
	return path, os.WriteFile(path+".node", []byte(n.lib.script+"\n"), 0o600)
}
