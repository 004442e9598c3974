//go:build linux && cgo

package nvml

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
)

// pending tracks the calls about GPUs that have not returned, by NVML's index.
type pending struct {
	patience time.Duration

	mu    sync.Mutex
	calls map[int]bool // true once the GPU has answered one of them
	all   sync.WaitGroup
}

// askEach calls f for each index on its own goroutine, so that a hanging GPU does not delay the others. It returns when all
// calls have returned or ctx has ended. It waits for the first answer for the time patience, and for each other one four
// times as long as for the first, at least a second: the driver may attach to GPUs one after the other. If no GPU that is
// left has answered anything, at least 0.4 s. While an earlier call for an index is still running, askEach skips that index.
//
// askEach returns the results by index and abandons the calls that have not returned. If late is not nil, each
// abandoned call passes its result to late.
func askEach[T any](ctx context.Context, p *pending, indexes []int, f func(index int) T, late func(T)) map[int]T {
	abandoned, results := false, map[int]T{} // under p.mu
	done := make(chan struct{}, len(indexes))
	p.mu.Lock()
	if p.calls == nil {
		p.calls = map[int]bool{}
	}
	n := 0
	for _, i := range indexes {
		if _, running := p.calls[i]; running {
			continue
		}
		p.calls[i] = false
		n++
		p.all.Go(func() {
			v := f(i)
			p.mu.Lock()
			delete(p.calls, i)
			results[i] = v
			tooLate := abandoned
			p.mu.Unlock()
			if tooLate && late != nil {
				late(v)
			}
			done <- struct{}{}
		})
	}
	p.mu.Unlock()
	p.await(ctx, n, done)
	p.mu.Lock()
	defer p.mu.Unlock()
	abandoned = true
	return maps.Clone(results)
}

func (p *pending) await(ctx context.Context, n int, done <-chan struct{}) {
	began, first := time.Now(), time.Duration(-1)
	timer, patient := time.NewTimer(p.patience), true
	defer timer.Stop()
	for n > 0 {
		select {
		case <-done:
			n--
			patient = false
			if first < 0 {
				first = time.Since(began)
			}
			timer.Reset(p.next(first, mutePatience))
		case <-timer.C:
			if patient || p.mute() {
				return
			}
			patient = true
			timer.Reset(p.next(first, time.Second) - p.next(first, mutePatience))
		case <-ctx.Done():
			return
		}
	}
}

// mutePatience is how long a GPU that has answered no call delays the others.
const mutePatience = 400 * time.Millisecond

// next returns how long to wait for the next answer.
func (p *pending) next(first, least time.Duration) time.Duration {
	return min(max(4*first, least), p.patience)
}

// mute reports whether no GPU whose call is running has answered.
func (p *pending) mute() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.Contains(slices.Collect(maps.Values(p.calls)), true)
}

// heard records that a GPU has answered one of several calls.
func (p *pending) heard(index int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[index] = true
}

// has reports whether a call for the index is running.
func (p *pending) has(index int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, running := p.calls[index]
	return running
}

// countCall is the index of the call that counts GPUs.
const countCall = -1

// discovery finds the GPUs of a library, in Open and in each Rescan.
type discovery struct {
	lib     *library
	o       Options
	pending *pending
	leftOut int // GPUs beyond collector.MaxGPUs at the last count
}

// gpus returns the GPUs of the driver. A GPU that does not answer has err set. GPUs that this process may not use (they
// belong to another container) are skipped. An error concerns all GPUs: NVML does not answer, or there is no usable GPU.
func (d *discovery) gpus(ctx context.Context) ([]*gpu, error) {
	count, err := d.count(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]int, count)
	for i := range all {
		all[i] = i
	}
	found, answers := make([]*gpu, count), askEach(ctx, d.pending, all, func(i int) *gpu { return d.lib.identify(i, d.pending.heard) }, nil)
	for i := range found {
		if found[i] = answers[i]; found[i] == nil {
			found[i] = newGPU(i)
			found[i].err = fmt.Errorf("GPU %d %w", i, errHangs)
			found[i].silent = func() bool { return d.pending.has(i) }
		}
	}
	d.fillIn(found)
	return d.usable(found)
}

// count returns the number of GPUs. The call hangs if the whole driver does.
func (d *discovery) count(ctx context.Context) (int, error) {
	type count struct {
		n    int
		code nvml.Return
	}
	answer, ended := askEach(ctx, d.pending, []int{countCall}, func(int) (c count) { c.n, c.code = d.lib.api.DeviceGetCount(); return c }, nil)[countCall]
	switch {
	case !ended:
		return 0, fmt.Errorf("count GPUs: NVML %w", errHangs)
	case answer.code != nvml.SUCCESS:
		return 0, fmt.Errorf("count GPUs: %w", answer.code)
	case answer.n == 0:
		return 0, fmt.Errorf("%w: the driver has none", collector.ErrNoDevices)
	}
	n := int(uint32(answer.n)) // unsigned in the library
	d.leftOut = max(0, n-collector.MaxGPUs)
	return n - d.leftOut, nil
}

// fillIn identifies GPUs that did not answer by the kernel driver's list: by address or, if NVML has not even reported
// that, by the place in the list. Both order GPUs by address, so no place counts if an address is at another one.
func (d *discovery) fillIn(found []*gpu) {
	if !slices.ContainsFunc(found, func(g *gpu) bool { return g.err != nil }) {
		return
	}
	known := kernelGPUs(d.o.Root)
	same := len(known) == len(found)
	for i, g := range found {
		same = same && (g.device.PCIBusID == "" || g.device.PCIBusID == known[i].at)
	}
	for i, g := range found {
		if same {
			g.device.PCIBusID = known[i].at
		}
		if g.err != nil {
			g.adopt(known)
		}
	}
}

// adopt copies the kernel's facts about the GPU's address.
func (g *gpu) adopt(known []kernelGPU) {
	d := &g.device
	for _, k := range known {
		if k.at != d.PCIBusID {
			continue
		}
		d.UUID, d.Model = cmp.Or(d.UUID, k.uuid), cmp.Or(d.Model, k.model)
		if k.minor != "" {
			d.Node = "nvidia" + k.minor
		}
	}
	d.UUID = cmp.Or(d.UUID, d.PCIBusID)
	d.ID = cmp.Or(d.UUID, "nvml"+d.GPU)
}

// usable removes the GPUs that this process cannot use.
func (d *discovery) usable(found []*gpu) ([]*gpu, error) {
	forbidden := false
	found = slices.DeleteFunc(found, func(g *gpu) bool {
		switch {
		case errors.Is(g.err, nvml.ERROR_NO_PERMISSION):
			forbidden = true
			return true
		// The GPU has disappeared since the count.
		case errors.Is(g.err, nvml.ERROR_INVALID_ARGUMENT), errors.Is(g.err, nvml.ERROR_NOT_FOUND):
			return true
		}
		return false
	})
	switch {
	case len(found) > 0:
		return found, nil
	case forbidden:
		k := d.o.kernelDriver()
		return nil, fmt.Errorf("%w: %w; %s", collector.ErrNoDevices, nvml.ERROR_NO_PERMISSION, cmp.Or(k.noAccess(), k.advice(nvml.ERROR_NO_PERMISSION)))
	}
	return nil, fmt.Errorf("%w: the driver has none any more", collector.ErrNoDevices)
}

// inventory is the set of GPUs that Open found, by ID. Rescan compares it with the current one.
type inventory map[string]*gpu

func takeInventory(gpus []*gpu) inventory {
	out := inventory{}
	for _, g := range gpus {
		out[g.device.ID] = g
	}
	return out
}

// compare reports whether a new Open would help (grown), because a GPU was added, answers again, or has another MIG layout,
// and whether a GPU has disappeared (shrunk). A GPU that has stopped answering needs no new Open; its source reports that.
func (v inventory) compare(now inventory) (grown, shrunk bool) {
	for id, is := range now {
		was, known := v[id]
		grown = grown || is.err == nil && (!known || was.err != nil || is.layout != was.layout && is.layout != "")
	}
	for id := range v {
		_, there := now[id]
		shrunk = shrunk || !there
	}
	return grown, shrunk
}

// goneFor is how long a GPU that has left the driver's list keeps its source, which reports it as lost. A new Open
// renumbers the GPUs behind it, as the driver does, and would drop the GPU's last XID from the page.
const goneFor = 10 * time.Minute

// busID returns a PCI address as DCGM and NVML spell it. The function is 0 on every NVIDIA GPU. The order of bus IDs is
// the order of addresses.
func busID(domain, bus, device uint32) string {
	return fmt.Sprintf("%08X:%02X:%02X.0", domain, bus, device)
}

// parsePCI returns the bus ID of an address in the kernel's spelling ("0000:3b:00.0"), "" if it is none.
func parsePCI(s string) string {
	var domain, bus, device, function uint32
	if n, err := fmt.Sscanf(s, "%x:%x:%x.%x", &domain, &bus, &device, &function); err != nil || n != 4 || function != 0 {
		return ""
	}
	return busID(domain, bus, device)
}

// kernelGPU is a GPU in the kernel driver's list, whether NVML answers or not.
type kernelGPU struct {
	at                 string // bus ID
	uuid, model, minor string // "" if the driver does not say
}

// kernelGPUs reads /proc/driver/nvidia/gpus, ordered by address, without excluded GPUs, which NVML does not count
// either. The directory does not exist on WSL.
func kernelGPUs(root string) []kernelGPU {
	var out []kernelGPU
	dir := filepath.Join("/", root, "proc/driver/nvidia/gpus")
	entries, err := os.ReadDir(dir)
	if err != nil { // a container without the driver's files: the addresses that the kernel gave to the driver
		bound, _ := filepath.Glob(filepath.Join("/", root, "sys/bus/pci/drivers/nvidia/*:*"))
		for _, path := range bound {
			if at := parsePCI(filepath.Base(path)); at != "" {
				out = append(out, kernelGPU{at: at})
			}
		}
	}
	for _, e := range entries {
		g := kernelGPU{at: parsePCI(e.Name())}
		if g.at == "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name(), "information"))
		if err == nil && !g.parseInformation(string(text)) {
			continue
		}
		out = append(out, g)
	}
	slices.SortFunc(out, func(a, b kernelGPU) int { return cmp.Compare(a.at, b.at) })
	return out
}

// parseInformation parses the file "information", with lines such as "GPU UUID:   GPU-…". It returns false for an
// excluded GPU.
func (g *kernelGPU) parseInformation(text string) (counts bool) {
	counts = true
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case strings.ContainsAny(value, "?"): // the driver has not read the UUID yet
		case key == "GPU UUID":
			g.uuid = value
		case key == "Model":
			g.model = value
		case key == "Device Minor":
			g.minor = value
		case key == "GPU Excluded":
			counts = value != "Yes"
		}
	}
	return counts
}
