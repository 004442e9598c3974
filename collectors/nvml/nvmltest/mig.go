package nvmltest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Instance is a MIG device: a compute instance in a GPU instance.
type Instance struct {
	GI, CI  int
	Profile string // of the MIG device: "1g.10gb", "1c.3g.40gb"
	UUID    string

	kind     migProfile
	ciSlices int
	share    float64 // of the GPU's load
}

// migProfile is a profile of nvmlDeviceGetGpuInstanceProfileInfo.
type migProfile struct {
	name   string
	number int // NVML_GPU_INSTANCE_PROFILE_*
	id     int
	slices int
	memory uint64 // MiB
	sms    int
	copies int
	count  int // instances that fit
}

// migProfiles lists the profiles by preset. Memory and multiprocessors come from NVIDIA's MIG user guide
// (https://docs.nvidia.com/datacenter/tesla/mig-user-guide/).
func migProfiles(preset string) []migProfile {
	if strings.HasPrefix(preset, "a100") {
		return []migProfile{
			{"1g.5gb", 0, 19, 1, 4864, 14, 1, 7},
			{"1g.5gb+me", 7, 20, 1, 4864, 14, 1, 1},
			{"1g.10gb", 9, 15, 1, 9856, 14, 1, 4},
			{"2g.10gb", 1, 14, 2, 9856, 28, 2, 3},
			{"3g.20gb", 2, 9, 3, 19968, 42, 3, 2},
			{"4g.20gb", 3, 5, 4, 19968, 56, 4, 1},
			{"7g.40gb", 4, 0, 7, 40192, 98, 7, 1},
		}
	}
	return []migProfile{
		{"1g.10gb", 0, 19, 1, 9984, 16, 1, 7},
		{"1g.10gb+me", 7, 20, 1, 9984, 16, 1, 1},
		{"1g.20gb", 9, 15, 1, 20096, 26, 1, 4},
		{"2g.20gb", 1, 14, 2, 20096, 32, 2, 3},
		{"3g.40gb", 2, 9, 3, 40448, 60, 3, 2},
		{"4g.40gb", 3, 5, 4, 40448, 64, 4, 1},
		{"7g.80gb", 4, 0, 7, 81152, 132, 8, 1},
	}
}

// firstID returns the lowest GPU instance ID of a profile with that many slices. IDs encode places on the GPU, and
// each half and quarter has its own.
func firstID(slices int) int {
	switch slices {
	case 1:
		return 7
	case 2:
		return 3
	case 3, 4:
		return 1
	}
	return 0
}

// instances returns the MIG devices of a GPU with these profiles. "3g.20gb" is a GPU instance with one compute
// instance; "1c.3g.20gb" is a compute instance of one slice, which joins the previous GPU instance while that has room.
func instances(preset string, gpu int, profiles []string) ([]Instance, error) {
	out := []Instance{} // not nil: MIG mode is on
	used := make(map[int]bool)
	for _, name := range profiles {
		gpuProfile, ciSlices := name, 0
		if c, rest, ok := strings.Cut(name, "c."); ok {
			var err error
			if ciSlices, err = strconv.Atoi(c); err != nil {
				return nil, fmt.Errorf("MIG profile %q: %w", name, err)
			}
			gpuProfile = rest
		}
		kinds := migProfiles(preset)
		i := slices.IndexFunc(kinds, func(p migProfile) bool { return p.name == gpuProfile })
		if i < 0 {
			return nil, fmt.Errorf("no MIG profile %q on %s", gpuProfile, preset)
		}
		in := Instance{Profile: name, kind: kinds[i], ciSlices: ciSlices}
		if ciSlices == 0 {
			in.ciSlices = in.kind.slices
		}
		in.GI = -1
		if last := len(out) - 1; last >= 0 && ciSlices > 0 && out[last].kind == in.kind && room(out, out[last].GI, in) {
			in.GI, in.CI = out[last].GI, out[last].CI+1
		}
		if in.GI < 0 {
			for in.GI = firstID(in.kind.slices); used[in.GI]; in.GI++ {
			}
			used[in.GI] = true
		}
		in.share = float64(in.ciSlices) / 7
		in.UUID = fmt.Sprintf("MIG-fa4e%04x-%04x-5000-8000-%012x", gpu, in.GI<<8|in.CI, in.kind.id)
		out = append(out, in)
	}
	return out, nil
}

func room(list []Instance, gi int, in Instance) bool {
	left := in.kind.slices
	for _, o := range list {
		if o.GI == gi {
			left -= o.ciSlices
		}
	}
	return left >= in.ciSlices
}

func (in Instance) line(gpu int) string {
	k := in.kind
	return fmt.Sprintf("mig %d gi=%d ci=%d uuid=%s profile=%s number=%d id=%d slices=%d cislices=%d memory=%d sms=%d copies=%d count=%d share=%.4f",
		gpu, in.GI, in.CI, in.UUID, in.Profile, k.number, k.id, k.slices, in.ciSlices, k.memory, k.sms*in.ciSlices/k.slices, k.copies, k.count, in.share)
}

// profileLines returns the profiles that a GPU offers.
func profileLines(preset string) (out []string) {
	for _, p := range migProfiles(preset) {
		out = append(out, fmt.Sprintf("profile * name=%s number=%d id=%d slices=%d memory=%d sms=%d copies=%d count=%d",
			p.name, p.number, p.id, p.slices, p.memory, p.sms, p.copies, p.count))
	}
	return out
}

// SetMIG replaces a GPU's MIG instances by instances of these profiles and notifies the listeners. Handles of destroyed
// instances answer INVALID_ARGUMENT.
func (n *Node) SetMIG(gpu int, profiles ...string) []Instance {
	var list []Instance
	n.change(func() (err error) {
		if list, err = instances(n.config.Preset, gpu, profiles); err != nil {
			return err
		}
		n.mig[gpu] = list
		n.event(gpu, eventMIGConfig, 0, noInstance, noInstance)
		return nil
	})
	return slices.Clone(list)
}

// NoMIG ends a GPU's MIG mode.
func (n *Node) NoMIG(gpu int) {
	n.change(func() error {
		delete(n.mig, gpu)
		n.event(gpu, eventMIGConfig, 0, noInstance, noInstance)
		return nil
	})
}

// Instances returns a GPU's MIG devices, in the order of their indexes.
func (n *Node) Instances(gpu int) []Instance {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.mig[gpu])
}

// P2P sets the result of nvmlDeviceGetP2PStatus for a pair of GPUs, in both directions: an nvmlGpuP2PStatus_t.
func (n *Node) P2P(a, b, status int) {
	n.SetNumber(a, fmt.Sprintf("p2p[%d]", b), float64(status))
	n.SetNumber(b, fmt.Sprintf("p2p[%d]", a), float64(status))
}
