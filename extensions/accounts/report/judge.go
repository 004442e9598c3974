package report

import "fmt"

// Thresholds of the judgement, as shares.
const (
	idleAbove    = 0.5 // of the time
	waitingAbove = 0.3
	throttled    = 0.1
	smallMemory  = 0.1 // of the memory
)

// judge says in one sentence what a person should look at first.
func (r *Report) judge() string {
	used, unused, known := 0, 0, 0
	boards := map[[2]string]*Use{}
	for i := range r.Boards {
		b := &r.Boards[i]
		u := boards[[2]string{b.Node, b.GPU}]
		if u == nil {
			u = &Use{}
			boards[[2]string{b.Node, b.GPU}] = u
		}
		u.add(&b.Use)
		if len(b.Verdicts) > 0 {
			return fmt.Sprintf("GPU %s of %s had a fault meanwhile: %s", b.GPU, b.Node, b.Verdicts[0].Text)
		}
	}
	for _, u := range boards {
		if u.Busy == nil {
			continue
		}
		if known++; u.Busy.Max == 0 { // below a hundredth in all samples
			unused++
		} else {
			used++
		}
	}
	t := &r.Total
	share := func(kind string) float64 {
		if t.GPUSeconds <= 0 {
			return 0
		}
		return t.Spent[kind] / t.GPUSeconds
	}
	switch {
	case known == 0:
		return "No reading says what the GPUs did."
	case used == 0 && known == 1:
		return "The GPU was not used."
	case used == 0:
		return fmt.Sprintf("None of %d GPUs was used.", known)
	case unused > 0:
		return fmt.Sprintf("%d of %d GPUs %s never used.", unused, known, wasOrWere(unused))
	case share(Idle) > idleAbove:
		return fmt.Sprintf("The GPUs were idle %.0f %% of the time.", 100*share(Idle))
	case share(Throttled) > throttled:
		return fmt.Sprintf("Clocks were held down %.0f %% of the time.", 100*share(Throttled))
	case t.Tensor != nil && share(Waiting) > waitingAbove:
		return fmt.Sprintf("Kernels ran without computing or moving memory %.0f %% of the time.", 100*share(Waiting))
	case t.Memory != nil && t.MemorySize != nil && *t.Memory < smallMemory**t.MemorySize:
		return fmt.Sprintf("At most %.0f %% of the memory was used: a smaller GPU or a part of one may do.", 100**t.Memory / *t.MemorySize)
	}
	return fmt.Sprintf("The GPUs were used %.0f %% of the time.", 100*t.Busy.Mean)
}

func wasOrWere(n int) string {
	if n == 1 {
		return "was"
	}
	return "were"
}
