package podresources

import (
	"errors"
	"fmt"
	"hash/maphash"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"warpgauge/pkg/unixgrpc"
)

// Numbers of fields in k8s.io/kubelet/pkg/apis/podresources/v1/api.proto. The
// answers are read here and not by the generated code, because that refuses a
// whole answer for one string that is not UTF-8, and makes an object of every pod,
// CPU and memory block of the node, of which a list has thousands that do not count.
const (
	listPods = 1 // ListPodResourcesResponse

	podName, podNamespace, podContainers = 1, 2, 3 // PodResources

	containerName, containerDevices, containerClaims = 1, 2, 5 // ContainerResources

	devicesResource, devicesIDs = 1, 2 // ContainerDevices

	claimName, claimNamespace, claimDevices = 2, 3, 4 // DynamicResource

	deviceCDI, deviceDriver, devicePool, deviceName, deviceShare = 1, 2, 3, 4, 5 // ClaimResource

	cdiName = 1 // CDIDevice

	allocatableDevices = 1 // AllocatableResourcesResponse
)

// Bounds of what is taken from an answer.
const (
	// longest is the length of a string in bytes. Kubernetes' own names have 253 at
	// most; ids and CDI names are up to their plugin.
	longest = 1024
	// most is the number of ids, claimed devices and CDI names that count. With
	// MaxMessage it bounds the memory of a Snapshot.
	most = 1 << 18
	// mostPods is the number of pods, with devices or without.
	mostPods = 1 << 16
	// mostSkipped is how many parts may be of no use in an answer that is of use.
	mostSkipped = 1 << 12
	// mostResources is how many names of resources are remembered during an answer.
	mostResources = 1024
)

// errTooMany says that an answer has more devices than a node can have.
var errTooMany = fmt.Errorf("more than %d pods or %d device ids", mostPods, most)

// errNonsense says that an answer consists of what cannot be used.
var errNonsense = fmt.Errorf("more than %d parts that cannot be used", mostSkipped)

// answer is what the kubelet said.
type answer struct {
	pods        []Pod     // with devices that count, as in a Snapshot
	allocatable []Devices // as in a Snapshot, never nil
	listed      []uint64  // hashes of all pods that were listed, in any order
	skipped     skipped
}

// skipped are parts of an answer that could not be used.
type skipped struct {
	parts int
	first string // what the first was, for a human
}

// decoder makes an answer of a message. Nothing it returns refers to the message.
type decoder struct {
	keep  func(resource string) bool
	seed  maphash.Seed
	known map[string]resource
	left  int // ids, claimed devices and CDI names that may still come
	place place
	skipped
}

// place is where in the message the decoder is, for what it says.
type place struct{ pod, container fields }

// resource is a name of one, and whether it counts.
type resource struct {
	name   string
	counts bool
}

func newDecoder(keep func(string) bool, seed maphash.Seed) *decoder {
	return &decoder{keep: keep, seed: seed, known: map[string]resource{}, left: most}
}

// list reads the answer to List.
func (d *decoder) list(message []byte) (*answer, error) {
	a := &answer{}
	err := walk(message, func(field protowire.Number, value []byte) error {
		if field != listPods {
			return nil
		}
		if len(a.listed) == mostPods {
			return errTooMany
		}
		pod, hash, err := d.pod(value)
		a.listed = append(a.listed, hash)
		if err != nil {
			return d.skip(err)
		}
		if len(pod.Containers) > 0 {
			a.pods = append(a.pods, pod)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.pods, a.skipped = mergePods(a.pods), d.skipped
	return a, nil
}

// able reads the answer to GetAllocatableResources.
func (d *decoder) able(message []byte) (*answer, error) {
	a := &answer{allocatable: []Devices{}}
	err := walk(message, func(field protowire.Number, value []byte) error {
		if field != allocatableDevices {
			return nil
		}
		devices, err := d.devices(value)
		if err != nil {
			return d.skip(err)
		}
		if len(devices.IDs) > 0 {
			a.allocatable = append(a.allocatable, devices)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.allocatable, a.skipped = mergeDevices(a.allocatable), d.skipped
	return a, nil
}

// pod reads a pod and hashes its name. It copies nothing of one without devices.
func (d *decoder) pod(message []byte) (pod Pod, hash uint64, err error) {
	f, err := read(message)
	if err != nil {
		return Pod{}, 0, err
	}
	hash, d.place = d.hash(f[podNamespace], f[podName]), place{pod: f}
	err = walk(message, func(field protowire.Number, value []byte) error {
		if field != podContainers {
			return nil
		}
		c, err := d.container(value)
		if err != nil {
			return d.skip(err)
		}
		if c.Name != "" {
			pod.Containers = append(pod.Containers, c)
		}
		return nil
	})
	if err != nil || len(pod.Containers) == 0 {
		return Pod{}, hash, err
	}
	if pod.Namespace, err = text("the namespace of a pod", f[podNamespace]); err != nil {
		return Pod{}, hash, err
	}
	if pod.Name, err = text("the name of a pod", f[podName]); err != nil {
		return Pod{}, hash, err
	}
	return pod, hash, nil
}

// container reads a container; the result is empty for one without devices.
func (d *decoder) container(message []byte) (c Container, err error) {
	f, err := read(message)
	if err != nil {
		return Container{}, err
	}
	d.place.container = f
	err = walk(message, func(field protowire.Number, value []byte) error {
		switch field {
		case containerDevices:
			devices, err := d.devices(value)
			if err != nil {
				return d.skip(err)
			}
			if len(devices.IDs) > 0 {
				c.Devices = append(c.Devices, devices)
			}
		case containerClaims:
			claims, err := d.claims(value)
			if err != nil {
				return d.skip(err)
			}
			c.Claims = append(c.Claims, claims...)
		}
		return nil
	})
	if err != nil || len(c.Devices) == 0 && len(c.Claims) == 0 {
		return Container{}, err
	}
	if c.Name, err = text("the name of a container", f[containerName]); err != nil {
		return Container{}, err
	}
	return c, nil
}

func (d *decoder) devices(message []byte) (Devices, error) {
	f, err := read(message)
	if err != nil {
		return Devices{}, err
	}
	r, err := d.resource(f[devicesResource])
	if err != nil || !r.counts {
		return Devices{}, err
	}
	out := Devices{Resource: r.name}
	err = walk(message, func(field protowire.Number, value []byte) error {
		if field != devicesIDs {
			return nil
		}
		id, err := d.counted("a device id of "+r.name, value)
		if err != nil {
			return d.skip(err)
		}
		out.IDs = append(out.IDs, id)
		return nil
	})
	return out, err
}

// resource looks a name up; most answers repeat a few.
func (d *decoder) resource(name []byte) (resource, error) {
	if r, ok := d.known[string(name)]; ok {
		return r, nil
	}
	s, err := text("the name of a resource", name)
	if err != nil {
		return resource{}, err
	}
	r := resource{name: s, counts: d.keep(s)}
	if len(d.known) < mostResources {
		d.known[s] = r
	}
	return r, nil
}

func (d *decoder) claims(message []byte) (claims []Claim, err error) {
	f, err := read(message)
	if err != nil {
		return nil, err
	}
	namespace, err := text("the namespace of a claim", f[claimNamespace])
	if err != nil {
		return nil, err
	}
	name, err := text("the name of a claim", f[claimName])
	if err != nil {
		return nil, err
	}
	err = walk(message, func(field protowire.Number, value []byte) error {
		if field != claimDevices {
			return nil
		}
		c, err := d.claimed(value)
		if err != nil {
			return d.skip(err)
		}
		c.Namespace, c.Name = namespace, name
		claims = append(claims, c)
		return nil
	})
	return claims, err
}

func (d *decoder) claimed(message []byte) (c Claim, err error) {
	f, err := read(message)
	if err != nil {
		return Claim{}, err
	}
	if c.Driver, err = d.counted("the driver of a device", f[deviceDriver]); err != nil {
		return Claim{}, err
	}
	if c.Pool, err = text("the pool of a device", f[devicePool]); err != nil {
		return Claim{}, err
	}
	if c.Device, err = text("the name of a device", f[deviceName]); err != nil {
		return Claim{}, err
	}
	if len(f[deviceShare]) > 0 {
		if c.ShareID, err = text("the share of a device", f[deviceShare]); err != nil {
			return Claim{}, err
		}
	}
	err = walk(message, func(field protowire.Number, value []byte) error {
		if field != deviceCDI {
			return nil
		}
		f, err := read(value)
		if err != nil {
			return d.skip(err)
		}
		name, err := d.counted("the name of a CDI device", f[cdiName])
		if err != nil {
			return d.skip(err)
		}
		c.CDI = append(c.CDI, name)
		return nil
	})
	return c, err
}

// skip counts a part that cannot be used. What says that there is too much of
// something ends the reading.
func (d *decoder) skip(err error) error {
	if errors.Is(err, errTooMany) || errors.Is(err, errNonsense) {
		return err
	}
	if d.parts++; d.parts == 1 {
		d.first = unixgrpc.Clip(fmt.Sprintf("%v (namespace %.253q, pod %.253q, container %.253q)", err, d.place.pod[podNamespace], d.place.pod[podName], d.place.container[containerName]))
	}
	if d.parts > mostSkipped {
		return errNonsense
	}
	return nil
}

// counted is text, of which there may only be so much.
func (d *decoder) counted(what string, value []byte) (string, error) {
	if d.left--; d.left < 0 {
		return "", errTooMany
	}
	return text(what, value)
}

// text is a copy of value where that can be a label.
func text(what string, value []byte) (string, error) {
	switch {
	case len(value) == 0:
		return "", fmt.Errorf("%s is empty", what)
	case len(value) > longest:
		return "", fmt.Errorf("%s has %d bytes, more than %d", what, len(value), longest)
	case !utf8.Valid(value):
		return "", fmt.Errorf("%s is not UTF-8: %q", what, value)
	}
	return string(value), nil
}

// hash stands for a pod where only its being listed matters.
func (d *decoder) hash(namespace, name []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(d.seed)
	_, _ = h.Write(namespace) // it never fails
	_ = h.WriteByte('/')      // in no name
	_, _ = h.Write(name)
	return h.Sum64()
}
