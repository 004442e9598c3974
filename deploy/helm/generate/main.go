// Command generate copies files of this repository into the chart (rules, dashboards) and, if Helm is named, renders
// the plain manifests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

//go:generate go run . -o ..

func main() {
	out := flag.String("o", "", "directory to write the chart's files to: deploy/helm")
	helm := flag.String("helm", "", "the program with which to render manifests into manifests; none: not")
	manifests := flag.String("manifests", "", "directory to write the manifests to: deploy")
	flag.Parse()
	if err := run(context.Background(), *out, *helm, *manifests); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

func run(ctx context.Context, out, helm, manifests string) error {
	b, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the repository: %w", err)
	}
	root := strings.TrimSpace(string(b))
	if out != "" {
		// Helm reads only files in the chart's own folder.
		err = errors.Join(
			replaceAll(filepath.Join(root, "deploy/prometheus/rules/*.yml"), filepath.Join(out, "warpgauge/files/rules")),
			replaceAll(filepath.Join(root, "dashboards/*.json"), filepath.Join(out, "warpgauge/files/dashboards")))
	}
	if err != nil || helm == "" {
		return err
	}
	return plain(ctx, root, helm, manifests)
}

// replaceAll replaces the content of dir by the files that match pattern.
func replaceAll(pattern, dir string) error {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		return errors.Join(fmt.Errorf("no file is %q", pattern), err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil {
			err = write(filepath.Join(dir, filepath.Base(f)), b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func write(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644) //nolint:gosec // files of the repository are public
}

// rendered lists the plain manifests: the file below deploy, its values, and further settings.
var rendered = []struct {
	file, values, set string
}{
	{"kubernetes/warpgauge.yaml", "", ""},
	{"kubernetes/warpgauge-configmap.yaml", "configmap", "arguments={-m,warpgauge:gpu-fields}"},
	{"kubernetes/warpgauge-pod-metadata.yaml", "pod-metadata", ""},
	{"kubernetes/warpgauge-shared.yaml", "shared-processes", ""},
	{"kubernetes/warpgauge-dra.yaml", "dra", ""},
	{"kubernetes/warpgauge-rootless.yaml", "rootless", ""},
	{"openshift/warpgauge.yaml", "openshift", ""},
}

// plain renders the manifests for users without Helm.
func plain(ctx context.Context, root, helm, manifests string) error {
	for _, r := range rendered {
		args := []string{"template", "warpgauge", filepath.Join(root, "deploy/helm/warpgauge"), "--namespace", "warpgauge", "--skip-tests"}
		head := "# Made from the chart by `make manifests`, with its defaults. To change it, render it\n# again or lay a kustomization over it.\n"
		if r.values != "" {
			args = append(args, "--values", filepath.Join(root, "deploy/helm/values", r.values+".yaml"))
			head = strings.Replace(head, "its defaults", "deploy/helm/values/"+r.values+".yaml", 1)
		}
		if r.set != "" {
			args = append(args, "--set", r.set)
		}
		cmd := exec.CommandContext(ctx, helm, args...) //nolint:gosec // the program that the Makefile names
		cmd.Stderr = os.Stderr
		b, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("render %s: %w", r.file, err)
		}
		if err := write(filepath.Join(manifests, r.file), append([]byte(head), helmsLines.ReplaceAll(b, nil)...)); err != nil {
			return err
		}
	}
	return nil
}

// helmsLines match lines that mark an object as managed by Helm, or name its template.
var helmsLines = regexp.MustCompile(`(?m)^ *(app\.kubernetes\.io/managed-by: Helm|helm\.sh/chart: .*|# Source: .*)\n`)
