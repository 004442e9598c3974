package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

const (
	imageTag      = "e2e"
	exporterImage = "docker.io/library/warpgauge:" + imageTag
	pauseImage    = "docker.io/library/pause:" + imageTag
)

// image is one layer of files. The image that the Dockerfile makes is tested by
// deploy/image/test; here only the binary and its libraries count.
type image struct {
	name       string
	entrypoint string
	files      map[string]string // path in the image to path here
}

// write makes a tar archive as docker save does, which ctr imports.
func (i image) write(path string) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{i.entrypoint}, "Env": []string{"PATH=/usr/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{i.name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	w := tar.NewWriter(f)
	for _, part := range []struct {
		name string
		text []byte
	}{{"config.json", config}, {"layer.tar", layer}, {"manifest.json", manifest}} {
		if err := w.WriteHeader(&tar.Header{Name: part.name, Mode: 0o644, Size: int64(len(part.text))}); err != nil {
			return err
		}
		if _, err := w.Write(part.text); err != nil {
			return err
		}
	}
	return w.Close()
}

func (i image) layer() ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dir := range i.folders() {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(i.files)) {
		f, err := os.Open(i.files[name])
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: info.Size()}); err != nil {
			return nil, err
		}
		if _, err := io.Copy(w, f); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// folders returns the folders of the files and of the runtime's mounts, parents first.
func (i image) folders() []string {
	set := map[string]bool{"dev": true, "proc": true, "sys": true, "tmp": true, "etc": true}
	for name := range i.files {
		for d := filepath.Dir(name); d != "."; d = filepath.Dir(d) {
			set[d] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// sharedLibraries returns the loader and the libraries that a program is linked with.
func sharedLibraries(program string) (map[string]string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	out := map[string]string{}
	if s := f.Section(".interp"); s != nil {
		text, err := s.Data()
		if err != nil {
			return nil, err
		}
		loader := strings.TrimRight(string(text), "\x00")
		out[strings.TrimPrefix(loader, "/")] = loader
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, l := range libraries {
		found, _ := filepath.Glob("/lib/*-linux-gnu/" + l)
		if len(found) == 0 {
			return nil, fmt.Errorf("find library %s of %s", l, program)
		}
		out[strings.TrimPrefix(found[0], "/")] = found[0]
	}
	return out, nil
}
