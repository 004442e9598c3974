package dcgmtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"warpgauge/collectors/nvml/nvmltest"
)

// LinkState is DCGM's dcgmNvLinkLinkState_t.
type LinkState int

// States of a link.
const (
	LinkAbsent LinkState = iota
	LinkDisabled
	LinkDown
	LinkUp
)

type linkRow struct {
	of     Entity
	states []LinkState
}

func (l linkRow) line() string {
	words := []string{"links", l.of.String()}
	for _, s := range l.states {
		words = append(words, strconv.Itoa(int(s)))
	}
	return strings.Join(words, " ")
}

func (e *Engine) addLinks(of Entity, states []LinkState) {
	e.links = append(e.links, linkRow{of, states})
	for n := range states {
		e.entities = append(e.entities, Link(of, n))
	}
}

// SetLink changes the state of a link of a GPU or a switch.
func (e *Engine) SetLink(of Entity, link int, s LinkState) {
	e.change(func() error {
		for i := range e.links {
			if e.links[i].of == of && link < len(e.links[i].states) {
				e.links[i].states[link] = s
				return nil
			}
		}
		return fmt.Errorf("set link %d of %s: there is none", link, of)
	})
}

// SetPeer sets the NVLink status between two GPUs: a DcgmNvLinkP2pStatus….
func (e *Engine) SetPeer(a, b, status int) {
	e.change(func() error {
		e.peers = append(e.peers, fmt.Sprintf("peer %d %d %d", a, b, status))
		return nil
	})
}

// Add adds an entity to the engine's list, for example ConnectX(0) or a bound GPU. supported marks it as supported by
// DCGM.
func (e *Engine) Add(x Entity, supported bool) {
	e.change(func() error {
		e.entities = append(e.entities, x)
		if !supported {
			e.odd = append(e.odd, x)
		}
		return nil
	})
}

// Remove removes an entity with its parts, like a GPU that was unbound.
func (e *Engine) Remove(x Entity) {
	e.change(func() error {
		gone := e.family(x)
		e.entities = slices.DeleteFunc(e.entities, func(o Entity) bool { return slices.Contains(gone, o) })
		e.links = slices.DeleteFunc(e.links, func(l linkRow) bool { return l.of == x })
		e.instances = slices.DeleteFunc(e.instances, func(m mig) bool { return slices.Contains(gone, m.entity) })
		return nil
	})
}

// Lose makes every value of a GPU, its instances and its links answer that the GPU is lost. The engine still knows the
// GPU's identity.
func (e *Engine) Lose(gpu int) {
	e.change(func() error { e.lost = append(e.lost, e.family(GPU(gpu))...); return nil })
}

// Restore brings back a GPU that was lost.
func (e *Engine) Restore(gpu int) {
	e.change(func() error {
		back := e.family(GPU(gpu))
		e.lost = slices.DeleteFunc(e.lost, func(x Entity) bool { return slices.Contains(back, x) })
		return nil
	})
}

// mig is one line of the engine's hierarchy.
type mig struct {
	entity, parent         Entity
	gpu, instance, compute int
	profile, slices        int
}

func (m mig) line() string {
	compute := strconv.Itoa(m.compute)
	if m.compute < 0 {
		compute = "0xffffffff"
	}
	return fmt.Sprintf("mig %s %s %s %d %d %s %d %d", m.entity, m.parent, nvmltest.UUID(m.gpu), m.gpu, m.instance, compute, m.profile, m.slices)
}

// instancesPerGPU is the number of IDs that DCGM reserves for the instances of a GPU.
const instancesPerGPU = 8

// SetMIG replaces a GPU's instances: profiles such as "1g.5gb"; "3g.20gb/2" has two compute instances. No profile ends
// MIG mode.
func (e *Engine) SetMIG(gpu int, profiles ...string) {
	e.change(func() error {
		gone := e.family(GPU(gpu))[1:]
		gone = slices.DeleteFunc(gone, func(x Entity) bool { return x.Kind == KindLink })
		e.entities = slices.DeleteFunc(e.entities, func(o Entity) bool { return slices.Contains(gone, o) })
		e.instances = slices.DeleteFunc(e.instances, func(m mig) bool { return m.gpu == gpu })
		e.partition(gpu, profiles...)
		return nil
	})
}

// MIGUUID returns the UUID of a compute instance.
func MIGUUID(gpu, instance, compute int) string {
	return fmt.Sprintf("MIG-fa4e%04x-%04x-5000-8000-%012x", gpu, instance<<8|compute, gpu)
}

func (e *Engine) partition(gpu int, profiles ...string) {
	for i, p := range profiles {
		name, parts, split := strings.Cut(p, "/")
		compute := 1
		if n, err := strconv.Atoi(parts); split && err == nil {
			compute = n
		}
		slice, _ := strconv.Atoi(name[:1])
		in := Instance(gpu*instancesPerGPU + i)
		e.entities = append(e.entities, in)
		e.value(in, fieldName, Text(name))
		e.instances = append(e.instances, mig{in, GPU(gpu), gpu, i + 1, -1, i, slice})
		for c := range compute {
			ci := Compute((gpu*instancesPerGPU+i)*instancesPerGPU + c)
			e.entities = append(e.entities, ci)
			e.value(ci, fieldName, Text(name))
			e.value(ci, fieldUUID, Text(MIGUUID(gpu, i+1, c)))
			e.instances = append(e.instances, mig{ci, in, gpu, i + 1, c, i, slice})
		}
	}
}
