package owner

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"
	"warpgauge/pkg/view"
)

// inputs holds the latest snapshots; they are empty for absent clients.
type inputs struct {
	pods *kube.Allocations
	meta *kube.Metadata
	jobs *Jobs
}

// source identifies the inputs of a table: equal sources make equal tables.
type source struct {
	view             *view.View
	pods, meta, jobs uint64
}

func (k *Keeper) inputs() inputs {
	return inputs{newest(k.o.Allocations), newest(k.o.Metadata), newest(k.o.Jobs)}
}

// answered reports whether all clients with users have answered at least once.
func (k *Keeper) answered() bool {
	in := k.inputs()
	return (k.o.Allocations == nil || !in.pods.Time.IsZero()) && (k.o.Jobs == nil || !in.jobs.Time.IsZero()) &&
		(!k.o.Claims || k.o.Metadata == nil || !in.meta.SlicesTime.IsZero() && (in.meta.Claims == nil || !in.meta.ClaimsTime.IsZero()))
}

func newest[T any](c Client[T]) *T {
	if c == nil {
		return new(T)
	}
	return c.Snapshot()
}

func (in *inputs) source(v *view.View) source {
	return source{v, in.pods.Version, in.meta.Version, in.jobs.Version}
}

// table holds the users of each device. It is immutable.
type table struct {
	from    source
	version uint64
	builds  uint64
	at      time.Time         // when its inputs changed, as well as that is known
	answers map[string]answer // by device ID; non-empty ones only

	devices   *devices
	uses      map[string][]use // by device ID; sorted, without duplicates
	jobs      map[string][]string
	podInfos  map[kube.PodName]podInfo
	unmatched []Unmatched
	losses    losses
	crowded   []string // IDs of devices with more than maxOwners users
}

// maxOwners bounds the copies of a device's series, one per user: far more than can share a GPU. Above it, no user is
// on the series.
const maxOwners = 256

// answer holds the owners of a device's series.
type answer struct {
	owners []view.Owner
	split  bool
}

// build joins the inputs. It must be called with mu held, or before New returns.
func (k *Keeper) build(v *view.View, in inputs, last *table) *table {
	t := &table{from: in.source(v), devices: newDevices(v), answers: map[string]answer{}, uses: map[string][]use{}, jobs: map[string][]string{}}
	k.remember(t.devices)
	k.join(t, in)
	t.podInfos = k.podInfos(t.uses, in.meta, last.podInfos, &t.losses)
	r := k.renderer(t)
	r.about = in.jobs.About
	for _, d := range t.devices.all {
		uses := t.usesOf(d)
		found := jobsOf(d, in.jobs.ByDevice)
		if len(found) > 0 {
			t.jobs[d.ID] = found
		}
		a := answer{r.withJobs(r.pods(uses), found), k.splits(uses)}
		if len(a.owners) > maxOwners {
			t.crowded = append(t.crowded, d.ID)
			continue
		}
		if len(a.owners) > 0 || a.split {
			t.answers[d.ID] = a
		}
	}
	if len(t.crowded) > 0 && !slices.Equal(t.crowded, last.crowded) {
		k.log.Warn("devices have too many users; their series show none", zap.Int("most", maxOwners), zap.Strings("devices", t.crowded))
	}
	t.version, t.builds, t.at = last.version, last.builds+1, time.Now()
	switch {
	case in.pods.Version != last.from.pods || in.meta.Version != last.from.meta:
	case in.jobs.Version != last.from.jobs:
		t.at = in.jobs.Changed
	case last.builds > 0: // another View has the same users
		t.at = last.at
	}
	if !maps.EqualFunc(t.answers, last.answers, func(a, b answer) bool {
		return a.split == b.split && slices.EqualFunc(a.owners, b.owners, equalOwners)
	}) {
		t.version++
	}
	return t
}

func (k *Keeper) renderer(t *table) *renderer {
	return &renderer{names: namesOf(k.o.OldNamespace), podInfos: t.podInfos, jobLabels: k.o.JobLabels, uid: k.o.PodUID, virtual: k.o.Virtual}
}

// usesOf returns the uses of a device, or the inherited ones.
func (t *table) usesOf(d *collector.Device) []use {
	own := t.uses[d.ID]
	if len(own) == 0 && d.Parent != "" && (d.Level == field.Link || d.Level == field.ComputeInstance) {
		return t.uses[d.Parent]
	}
	return own
}

// usesAndJobs returns the uses of a device, then its jobs as uses with only a job.
func (t *table) usesAndJobs(d *collector.Device) []use {
	out := slices.Clip(t.usesOf(d))
	for _, job := range t.jobs[d.ID] {
		out = append(out, use{job: job})
	}
	return out
}

// users returns the containers and jobs of a device, each once.
func (t *table) users(d *collector.Device) (out []Owner) {
	for _, u := range t.usesAndJobs(d) {
		out = append(out, Owner{u.pod.Namespace, u.pod.Name, t.podInfos[u.pod].uid, u.container, u.job})
	}
	return slices.Compact(out)
}

// splits reports whether users of a device have separate values.
func (k *Keeper) splits(uses []use) bool {
	switch {
	case k.o.Processes == nil || len(uses) == 0:
		return false
	case k.o.Virtual:
		return !sameContainer(uses)
	}
	return !samePod(uses)
}

func equalOwners(a, b view.Owner) bool {
	return slices.Equal(a.Labels, b.Labels) && slices.Equal(a.PodLabels, b.PodLabels) && slices.Equal(a.Facts, b.Facts)
}

// Unmatched is an ID of the kubelet without a device.
type Unmatched struct {
	Namespace, Pod, Container string
	Resource                  string // or the claim's driver
	ID                        string // or the claim's pool/device
	Reason                    string // form, device, instance or claim
}

func (u Unmatched) compare(v Unmatched) int {
	return cmp.Or(cmp.Compare(u.Reason, v.Reason), cmp.Compare(u.ID, v.ID), cmp.Compare(u.Namespace, v.Namespace),
		cmp.Compare(u.Pod, v.Pod), cmp.Compare(u.Container, v.Container), cmp.Compare(u.Resource, v.Resource))
}

// join finds the devices of pods.
func (k *Keeper) join(t *table, in inputs) {
	for _, p := range in.pods.Pods {
		if own := k.o.OwnPod; own.Name != "" && own.Name == p.Name && (own.Namespace == "" || own.Namespace == p.Namespace) {
			continue
		}
		for _, c := range p.Containers {
			u := use{pod: p.PodName, container: c.Name}
			for _, d := range c.Devices {
				k.joinDevices(t, u, d)
			}
			for _, claim := range c.Claims {
				if k.o.Claims && field.VendorByDriver(claim.Device.Driver) != nil && in.meta.Uses(claim) {
					t.joinClaim(u, claim, in.meta)
				}
			}
		}
	}
	for id, uses := range t.uses {
		slices.SortFunc(uses, compareUses)
		t.uses[id] = slices.CompactFunc(uses, func(a, b use) bool { return compareUses(a, b) == 0 })
	}
	slices.SortFunc(t.unmatched, Unmatched.compare) // so that tables can be compared
}

func (k *Keeper) joinDevices(t *table, u use, d kube.Devices) {
	u.source = d.Resource
	for _, text := range d.IDs {
		id, ok := parseID(text)
		if !ok {
			t.addUnmatched(u, text, reasonForm)
			continue
		}
		found, reason := t.devices.find(d.Resource, id)
		if known := t.devices.byID[k.instances[id.name]]; len(found) == 0 && id.form == formMIG && known != nil {
			found = append(found, known)
		}
		if len(found) == 0 {
			t.addUnmatched(u, text, reason)
		}
		u.replica = id.replica
		for _, device := range found {
			t.uses[device.ID] = append(t.uses[device.ID], u)
		}
	}
}

func (t *table) joinClaim(u use, c kube.Claim, meta *kube.Metadata) {
	u.source = c.Device.Driver
	var device *collector.Device
	reason := reasonClaim
	s, known := meta.Slices[c.Device]
	if known {
		device, reason = t.devices.claimed(s)
	}
	if device == nil {
		t.addUnmatched(u, c.Device.Pool+"/"+c.Device.Device, reason)
		return
	}
	u.claim = claimLabels(c, s)
	t.uses[device.ID] = append(t.uses[device.ID], u)
}

func (t *table) addUnmatched(u use, id, reason string) {
	t.unmatched = append(t.unmatched, Unmatched{
		Namespace: u.pod.Namespace, Pod: u.pod.Name, Container: u.container, Resource: u.source, ID: id, Reason: reason,
	})
}

// maxInstances bounds the memory for MIG UUIDs: more instances than a node creates in years.
const maxInstances = 4096

// remember records the instance of each MIG UUID, because after a failover the new collector may not know it. It must
// be called with mu held.
func (k *Keeper) remember(n *devices) {
	if len(k.instances)+len(n.named) > maxInstances {
		clear(k.instances)
	}
	for name, d := range n.named {
		if name.form == formMIG {
			k.instances[name.name] = d.ID
		}
	}
}

// jobsOf returns the jobs of a device. A file named by a GPU's index applies to the GPU and its links, a file that
// names an instance only to the instance.
func jobsOf(d *collector.Device, files map[string][]string) []string {
	switch {
	case len(files) == 0 || d.GPU == "":
		return nil
	case isInstance(d):
		return files[d.GPU+"."+d.Instance.ID]
	}
	return files[d.GPU]
}

// podInfo holds the uid and labels of a pod that uses devices.
type podInfo struct {
	uid           string
	labels, facts []collector.Label // facts are for dialects
}

// podFacts returns a pod's labels for dialects: its uid and the labels of Options.PodFacts.
func (k *Keeper) podFacts(uid string, labels map[string]string) (out []collector.Label) {
	if uid != "" {
		out = append(out, collector.Label{Name: "pod_uid", Value: uid})
	}
	for _, l := range k.o.PodFacts {
		if v := labels[l.Value]; v != "" {
			out = append(out, collector.Label{Name: strings.ToLower(l.Name), Value: v[:min(len(v), maxPodText)]})
		}
	}
	return out
}

// podInfos looks up the pods with devices. A pod that the API server no longer has keeps its previous metadata from last
// until the kubelet stops listing it.
func (k *Keeper) podInfos(uses map[string][]use, meta *kube.Metadata, last map[kube.PodName]podInfo, lost *losses) map[kube.PodName]podInfo {
	out := map[kube.PodName]podInfo{}
	for _, list := range uses {
		for i := range list {
			name := list[i].pod
			if _, done := out[name]; done {
				continue
			}
			p := last[name]
			if pod, known := meta.Pods[name]; known {
				p = podInfo{uid: pod.UID, facts: k.podFacts(pod.UID, pod.Labels)}
				if k.o.PodLabels {
					p.labels = podLabels(pod.Labels, k.reserved, lost)
				}
			}
			out[name] = p
		}
	}
	return out
}
