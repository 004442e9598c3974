package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options of a run.
type options struct {
	exporter string        // the binary
	library  string        // NVML; "" as the exporter finds it
	smi      string        // nvidia-smi
	cuda     string        // libcuda; "" for no load
	rounds   int           // comparisons in each phase
	pause    time.Duration // between them
	warmup   time.Duration // from a change of the load to the first comparison
	window   time.Duration // of measuring processor time
}

// gpu is one of the machine's.
type gpu struct {
	index, uuid, name, pci string
	mig                    bool
}

// record is everything that a run has found.
type record struct {
	when      time.Time
	gpus      []gpu
	driver    string
	results   []result
	loads     []loadResult
	costs     []callCost
	cpu       []usage
	notes     []string
	silent    map[string]error // questions that nvidia-smi did not answer
	simulated bool
}

// loadResult is the result of a multiplication.
type loadResult struct {
	kernel   string
	gpu      string
	teraflop float64
	err      error
}

func (r *record) failed() int {
	n := 0
	for _, x := range r.results {
		if x.verdict.bad() {
			n++
		}
	}
	for _, l := range r.loads {
		if l.err != nil {
			n++
		}
	}
	return n
}

// runner carries a run's pieces.
type runner struct {
	options
	smi  *smi
	e    *exporter
	idle page
	rec  *record
	say  func(format string, args ...any)
}

// run makes the whole check.
func run(ctx context.Context, o options, say func(format string, args ...any)) (*record, error) {
	s, err := newSMI(ctx, o.smi, properties())
	if err != nil {
		return nil, err
	}
	r := &runner{options: o, smi: s, rec: &record{when: time.Now(), silent: map[string]error{}}, say: say}
	if err := r.identify(ctx); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gpu-check-")
	if err != nil {
		return nil, err
	}
	err = r.check(ctx, dir)
	return r.rec, errors.Join(err, os.RemoveAll(dir))
}

// identify asks nvidia-smi what there is.
func (r *runner) identify(ctx context.Context) error {
	all, err := r.smi.csv(ctx)
	if err != nil {
		return err
	}
	for uuid, one := range all {
		r.rec.driver = one["csv:driver_version"]
		r.rec.gpus = append(r.rec.gpus, gpu{
			index: one["csv:index"], uuid: uuid, name: one["csv:name"], pci: one["csv:pci.bus_id"],
			mig: one["csv:mig.mode.current"] == "Enabled",
		})
		// Boards of the simulated NVML (collectors/nvml/nvmltest) say so themselves.
		r.rec.simulated = r.rec.simulated || strings.HasPrefix(uuid, "GPU-fa4e")
	}
	if len(r.rec.gpus) == 0 {
		return errors.New("nvidia-smi knows no GPU")
	}
	slices.SortFunc(r.rec.gpus, func(a, b gpu) int { return byIndex(a.index) - byIndex(b.index) })
	return nil
}

func byIndex(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1
	}
	return n
}

func (r *runner) check(ctx context.Context, dir string) error {
	fields := filepath.Join(dir, "all.csv")
	if err := writeFields(fields); err != nil {
		return err
	}
	r.say("every field that NVML can supply, each second")
	if err := withExporter(ctx, r.options, time.Second, fields, func(e *exporter) error {
		r.e = e
		return r.phases(ctx)
	}); err != nil {
		return err
	}
	for _, every := range []time.Duration{time.Second, 100 * time.Millisecond, 10 * time.Millisecond} {
		r.say("processor time at %v with the default fields", every)
		u, err := measureCPU(ctx, r.options, every)
		if err != nil {
			return err
		}
		r.rec.cpu = append(r.rec.cpu, u)
	}
	return nil
}

// phases compares idle and under load.
func (r *runner) phases(ctx context.Context) error {
	if err := wait(ctx, r.warmup); err != nil {
		return err
	}
	first, start := page(nil), time.Now()
	err := r.phase(ctx, "idle", func(rounds []round) { first, r.idle = rounds[0].before, rounds[len(rounds)-1].after })
	if err != nil {
		return err
	}
	if err := r.loaded(ctx); err != nil {
		return err
	}
	last, err := scrape(ctx, r.e.url)
	if err != nil {
		return err
	}
	r.rec.costs = costs(first, last, time.Since(start))
	return nil
}

// phase makes the rounds of one phase and judges them.
func (r *runner) phase(ctx context.Context, name string, then func([]round)) error {
	r.say("%s: %d comparisons with nvidia-smi", name, r.rounds)
	start := time.Now()
	var rounds []round
	for range r.rounds {
		one, err := r.round(ctx)
		if err != nil {
			return err
		}
		rounds = append(rounds, one)
		if err := wait(ctx, r.pause); err != nil {
			return err
		}
	}
	r.rec.results = append(r.rec.results, compareAll(name, r.rec.gpus, rounds)...)
	for _, g := range r.rec.gpus {
		r.rec.results = append(r.rec.results, expectTraffic(name, g, rounds)...)
		r.rec.results = append(r.rec.results, expectHealth(name, g, rounds[len(rounds)-1])...)
		if e, ok := expectEnergy(name, g, rounds, (time.Since(start) - r.pause).Seconds()); ok {
			r.rec.results = append(r.rec.results, e)
		}
	}
	then(rounds)
	return nil
}

func (r *runner) round(ctx context.Context) (one round, err error) {
	if one.before, err = scrape(ctx, r.e.url); err != nil {
		return one, err
	}
	var silent map[string]error
	if one.smi, silent, err = r.smi.ask(ctx); err != nil {
		return one, err
	}
	one.at = time.Now()
	for what, why := range silent {
		r.rec.silent[what] = why
	}
	// A sample that began after nvidia-smi has answered.
	if err = wait(ctx, time.Second); err != nil {
		return one, err
	}
	one.after, err = scrape(ctx, r.e.url)
	return one, err
}

// loaded runs the multiplications and compares meanwhile.
func (r *runner) loaded(ctx context.Context) error {
	if r.cuda == "" {
		r.rec.notes = append(r.rec.notes, "no load was made (--cuda is empty)")
		return nil
	}
	devices, err := openCUDA(r.cuda)
	if err != nil {
		return fmt.Errorf("load %s for a load (--cuda= checks without one): %w", r.cuda, err)
	}
	for _, k := range []kernel{halfKernel, singleKernel} {
		on, targets := r.targets(k, devices)
		if len(on) == 0 {
			r.rec.notes = append(r.rec.notes, "no GPU can compute "+k.name)
			continue
		}
		if err := r.underLoad(ctx, k, on, targets); err != nil {
			return err
		}
	}
	return nil
}

// targets are the devices that can run a kernel, and the GPUs that they are.
// A GPU in MIG mode is not loaded: CUDA sees one of its instances only.
func (r *runner) targets(k kernel, devices []cudaDevice) (on []cudaDevice, targets []gpu) {
	for _, g := range r.rec.gpus {
		for _, d := range devices {
			if samePCI(g.pci, d.pci) && !g.mig && d.capability >= k.oldest {
				on, targets = append(on, d), append(targets, g)
			}
		}
	}
	return on, targets
}

// samePCI compares "00000000:1B:00.0" with "0000:1b:00.0".
func samePCI(a, b string) bool {
	short := func(s string) string {
		domain, rest, _ := strings.Cut(strings.ToLower(s), ":")
		return strings.TrimLeft(domain, "0") + ":" + rest
	}
	return short(a) == short(b)
}

func (r *runner) underLoad(ctx context.Context, k kernel, on []cudaDevice, targets []gpu) error {
	r.say("matrix multiplication, %s, on %d GPUs", k.name, len(on))
	l, err := startLoad(k, on)
	if err != nil {
		return err
	}
	if err = wait(ctx, r.warmup); err == nil {
		err = r.phase(ctx, k.name, func(rounds []round) {
			for _, g := range targets {
				r.rec.results = append(r.rec.results, expectLoad(k.name, k, g, r.idle, rounds[len(rounds)-1].after)...)
			}
		})
	}
	for _, o := range l.stop() {
		index := slices.IndexFunc(targets, func(g gpu) bool { return samePCI(g.pci, o.device.pci) })
		r.rec.loads = append(r.rec.loads, loadResult{k.name, targets[index].index, o.teraflop, o.err})
	}
	return err
}
