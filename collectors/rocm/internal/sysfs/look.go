package sysfs

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
)

// look looks whether the GPU is there, and gives its files names anew.
// Errors: collector.ErrDeviceLost; collector.ErrColumnsChanged if another board
// has come in its place.
func (h *handle) look() error {
	if !h.there() {
		_ = h.Close() // never fails
		h.gone = true
		return h.lost()
	}
	h.gone = false
	if !h.named.IsZero() && h.now.Sub(h.named) < renameAfter {
		return nil
	}
	_ = h.Close() // never fails
	if id := uniqueID(h.dir); id != h.gpu.UniqueID && id != 0 && h.gpu.UniqueID != 0 {
		return fmt.Errorf("read gpu %s: unique id is %016x, was %016x: %w", h.gpu.PCI, id, h.gpu.UniqueID, collector.ErrColumnsChanged)
	}
	h.name()
	h.named = h.now
	return nil
}

// name says where each file is. The numbers of hwmon and of its sensors are the
// kernel's to choose whenever the driver is bound.
func (h *handle) name() {
	hwmon := hwmonOf(h.dir)
	sensors := sensorsOf(hwmon)
	for i := range h.values {
		h.values[i].file = NewFile(h.values[i].path(h.dir, hwmon, sensors))
	}
	for i := range h.ras {
		h.ras[i].file = NewFile(filepath.Join(h.dir, "ras", h.ras[i].block+"_err_count"))
	}
	h.metrics = NewFile(filepath.Join(h.dir, "gpu_metrics"))
	h.pages.file = NewFile(filepath.Join(h.dir, "ras/gpu_vram_bad_pages"))
}

// path is where a place is now, "" for nowhere.
func (s place) path(dir, hwmon string, sensors map[string]string) string {
	switch {
	case s.file == "", s.hwmon && hwmon == "", s.sensor != "" && sensors[s.sensor] == "":
		return ""
	case s.sensor != "":
		return filepath.Join(hwmon, strings.Replace(s.file, "N", sensors[s.sensor], 1))
	case s.hwmon:
		return filepath.Join(hwmon, s.file)
	default:
		return filepath.Join(dir, s.file)
	}
}

// hwmonOf is the directory of the GPU's sensors, "" if it has none.
func hwmonOf(dir string) string {
	for _, n := range names(filepath.Join(dir, "hwmon")) {
		path := filepath.Join(dir, "hwmon", n)
		if text(path, "name") == "amdgpu" {
			return path
		}
	}
	return ""
}

// sensorsOf maps the labels of temperatures to their numbers.
func sensorsOf(hwmon string) map[string]string {
	m := map[string]string{}
	for n := 1; n <= 8 && hwmon != ""; n++ {
		if label := text(hwmon, "temp"+strconv.Itoa(n)+"_label"); label != "" {
			m[label] = strconv.Itoa(n)
		}
	}
	return m
}

func (h *handle) warn(message string, err error) {
	h.r.o.Log.Warn(message, zap.String("device", h.gpu.PCI), zap.String("file", h.metrics.path), zap.Error(err))
}
