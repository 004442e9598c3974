package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

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
		if err != nil {
			t.Errorf("%s: %v\n%s", platform, err, out)
		}
		for _, path := range strings.Fields(string(out)) {
			for _, forbidden := range []string{"github.com/NVIDIA/", "k8s.io/", "runtime/cgo", "warpgauge/collectors/", "warpgauge/pkg/supervisor", "warpgauge/pkg/kube", "google.golang.org/grpc"} {
				if strings.HasPrefix(path+"/", strings.TrimSuffix(forbidden, "/")+"/") {
					t.Errorf("%s: warpctl links %s", platform, path)
				}
			}
		}
	}
}

// TestCommandsOfPages: each `warpctl …` in a code block of the docs uses an existing command and flags.
func TestCommandsOfPages(t *testing.T) {
	root := (&app{out: os.Stdout, err: os.Stderr}).root()
	checked := 0
	for path, text := range pages.Read(t, "../..") {
		for _, words := range pages.Commands(text, "warpctl", "bin/warpctl") {
			line, args := path+": "+strings.Join(words, " "), words[1:]
			cmd := root
			if len(args) > 0 {
				if cmd = root.Command(args[0]); cmd == nil {
					t.Errorf("%s: there is no such command", line)
					continue
				}
			}
			for _, w := range args {
				name, _, _ := strings.Cut(strings.TrimLeft(w, "-"), "=")
				if strings.HasPrefix(w, "-") && w != "-" && !hasFlag(cmd.Flags, name) {
					t.Errorf("%s: there is no %s", line, w)
				}
			}
			checked++
		}
	}
	if checked < 12 {
		t.Errorf("only %d commands found", checked)
	}
}

func hasFlag(flags []cli.Flag, name string) bool {
	return slices.ContainsFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
}
