package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
)

const (
	imageTag      = "e2e"
	exporterImage = "docker.io/library/warpgauge:" + imageTag
	pauseImage    = "docker.io/library/pause:" + imageTag
)

// image is one layer of files. deploy/image/test tests the Dockerfile's image; here only the binary matters.
type image struct {
	name       string
	entrypoint string
	files      map[string]string // path in the image to path on this machine
}

// archive returns a tar archive in the form of docker save, which ctr imports.
func (i image) archive() []byte {
	layer := i.layer()
	config := get(json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{i.entrypoint}, "Env": []string{"PATH=/usr/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	}))
	manifest := get(json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{i.name}, "Layers": []string{"layer.tar"}}}))
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	addFile(w, "config.json", 0o644, config)
	addFile(w, "layer.tar", 0o644, layer)
	addFile(w, "manifest.json", 0o644, manifest)
	must(w.Close())
	return out.Bytes()
}

func addFile(w *tar.Writer, name string, mode int64, text []byte) {
	must(w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text))}))
	get(w.Write(text))
}

// layer holds the files after their folders and the folders of the runtime's mounts, parents first.
func (i image) layer() []byte {
	folders := map[string]bool{"dev": true, "proc": true, "sys": true, "tmp": true, "etc": true}
	for name := range i.files {
		for d := filepath.Dir(name); d != "."; d = filepath.Dir(d) {
			folders[d] = true
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		must(w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}))
	}
	for _, name := range slices.Sorted(maps.Keys(i.files)) {
		addFile(w, name, 0o755, get(os.ReadFile(i.files[name])))
	}
	must(w.Close())
	return out.Bytes()
}
