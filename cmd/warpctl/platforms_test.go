package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/pages"
)

// platforms lists the platforms of a release.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// TestDependencies: on each platform, warpctl links no code that reads a GPU or talks to Kubernetes, and its packages have
// Go files. make warpctl-platforms builds them.
func TestDependencies(t *testing.T) {
	for _, platform := range platforms {
		system, machine, _ := strings.Cut(platform, "/")
		cmd := exec.Command("go", "list", "-deps", ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+machine)
		out, err := cmd.CombinedOutput()
		testkit.ErrorIf(t, err != nil, "%s: %v\n%s", platform, err, out)
		for _, path := range strings.Fields(string(out)) {
			for _, forbidden := range []string{"github.com/NVIDIA/", "k8s.io/", "runtime/cgo", "warpgauge/collectors/", "warpgauge/pkg/supervisor", "warpgauge/pkg/kube", "google.golang.org/grpc"} {
				testkit.ErrorIf(t, strings.HasPrefix(path+"/", strings.TrimSuffix(forbidden, "/")+"/"), "%s: warpctl links %s", platform, path)
			}
		}
	}
}

// TestCommandsOfPages: each `warpctl …` in a code block of the docs uses an existing command and flags.
func TestCommandsOfPages(t *testing.T) {
	root := (&app{out: os.Stdout, err: os.Stderr}).root()
	n := pages.Check(t, pages.Read(t, "../.."), root, func(string, *cli.Command, []string) {}, "warpctl", "bin/warpctl")
	testkit.ErrorIf(t, n < 12, "only %d commands found", n)
}
