//go:build linux && cgo

package nvml

// plan collects what a batch has to ask. Calls and field values that several
// cells need are made once.
type plan struct {
	lib    *library
	layout layout
	asked  map[question]input // with the slot of the first result
	names  []string           // of the meters
	meters map[string]int
	bound  map[call]binding
}

// question is what is asked of whom.
type question struct {
	call call
	arg  [3]uint32
	raw  uintptr
}

// newPlan begins an empty plan. Field values are those of the GPU raw.
func newPlan(l *library, raw uintptr) *plan {
	return &plan{
		lib: l, layout: layout{device: raw}, asked: map[question]input{},
		meters: map[string]int{}, bound: map[call]binding{},
	}
}

// bind finds the newest name of a call that the library has.
func (p *plan) bind(c call) binding {
	if b, known := p.bound[c]; known {
		return b
	}
	var out binding
	for _, g := range functions[c] {
		if fn, err := p.lib.dl.Lookup(g.symbol); err == nil {
			out = binding{fn, g.shape, g.symbol}
			break
		}
	}
	p.bound[c] = out
	return out
}

// ask adds a term; false if this library cannot tell it.
func (p *plan) ask(t term, raw uintptr, link uint32) (input, bool) {
	for i, a := range t.arg {
		if a == thisLink {
			t.arg[i] = link
		}
	}
	b := p.bind(t.call)
	if b.fn == nil || t.call != getFieldValues && t.pick >= b.shape.results() {
		return input{}, false
	}
	q := question{t.call, t.arg, raw}
	in, known := p.asked[q]
	if !known {
		in = p.add(q, b)
		p.asked[q] = in
	}
	in.slot += t.pick
	return in, true
}

func (p *plan) add(q question, b binding) input {
	l := &p.layout
	in := input{slot: l.slots}
	if q.call == getFieldValues {
		l.fieldValues, l.meter = b.fn, p.meter(b.name)
		in.isValue, in.unit = true, len(l.values)
		l.values = append(l.values, plannedValue{id: q.arg[0], scope: q.arg[1], slot: l.slots})
		l.slots++
		return in
	}
	in.unit = len(l.calls)
	l.calls = append(l.calls, plannedCall{fn: b.fn, device: q.raw, arg: q.arg, shape: b.shape, slot: l.slots, meter: p.meter(b.name)})
	l.slots += b.shape.results()
	return in
}

func (p *plan) meter(name string) int {
	i, known := p.meters[name]
	if !known {
		i = len(p.names)
		p.meters[name] = i
		p.names = append(p.names, name)
	}
	return i
}

// batch makes the batch.
func (p *plan) batch() (*batch, error) {
	p.layout.meters = len(p.names)
	return newBatch(p.layout)
}
