package owner

import (
	"maps"
	"slices"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/cri"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/hpc"
	"warpgauge/pkg/podmeta"
	"warpgauge/pkg/podresources"
	"warpgauge/pkg/view"
)

// inputs are the newest Snapshots; nil where nobody is asked.
type inputs struct {
	pods *podresources.Snapshot
	meta *podmeta.Snapshot
	cri  *cri.Snapshot
	jobs *hpc.Snapshot
}

// source says what a table was made from: equal sources make equal tables.
type source struct {
	view                  *view.View
	pods, meta, cri, jobs uint64
}

func (k *Keeper) read() inputs {
	return inputs{newest(k.o.PodResources), newest(k.o.PodMeta), newest(k.o.Containers), newest(k.o.Jobs)}
}

func newest[S any](snapshot func() *S) *S {
	if snapshot == nil {
		return nil
	}
	return snapshot()
}

func (in *inputs) source(v *view.View) source {
	s := source{view: v}
	if in.pods != nil {
		s.pods = in.pods.Version
	}
	if in.meta != nil {
		s.meta = in.meta.Version
	}
	if in.cri != nil {
		s.cri = in.cri.Version
	}
	if in.jobs != nil {
		s.jobs = in.jobs.Version
	}
	return s
}

// table is who uses which device. It is immutable.
type table struct {
	from    source
	version uint64
	answers map[string]answer // by id of the device; those that say something

	devices   *devices
	uses      map[string][]use // by id of the device that was given
	jobs      map[string][]string
	people    people
	unmatched []Unmatched
	losses    losses
}

// answer is what series of a device show.
type answer struct {
	owners []exposition.Owner
	split  bool
}

// build joins. Call it with mu held, or before anybody else has the Keeper.
func (k *Keeper) build(v *view.View, in inputs, last *table) *table {
	t := &table{from: in.source(v), devices: newDevices(v), answers: map[string]answer{}, jobs: map[string][]string{}}
	k.remember(t.devices)
	var files map[string][]string
	if in.jobs != nil {
		files = in.jobs.Jobs
	}
	j := joined{}
	if in.pods != nil {
		j = k.join(t.devices, in)
	}
	t.uses, t.unmatched = j.uses, j.unmatched
	k.who.read(in.cri)
	t.people = k.people(t.uses, in.meta, &t.losses)
	r := k.renderer(t)
	for _, d := range t.devices.all {
		uses := t.usesOf(d)
		found := jobs(d, files)
		if len(found) > 0 {
			t.jobs[d.ID] = found
		}
		if a := (answer{r.owners(uses, found), k.splits(uses)}); len(a.owners) > 0 || a.split {
			t.answers[d.ID] = a
		}
	}
	t.version = last.version
	if !maps.EqualFunc(t.answers, last.answers, equalAnswers) {
		t.version++
	}
	return t
}

func (k *Keeper) renderer(t *table) *renderer {
	return &renderer{names: namesOf(k.o.OldNamespace), people: &t.people, uid: k.o.PodUID, virtual: k.o.Virtual}
}

// usesOf returns the uses of a device, or those that it inherits.
func (t *table) usesOf(d *collector.Device) []use {
	own := t.uses[d.ID]
	if len(own) == 0 && d.Parent != "" && (d.Level == field.Link || d.Level == field.ComputeInstance) {
		return t.uses[d.Parent]
	}
	return own
}

// splits reports whether users of a device are told apart by values.
func (k *Keeper) splits(uses []use) bool {
	switch {
	case k.o.Processes == nil || len(uses) == 0:
		return false
	case k.o.Virtual:
		return !sameContainer(uses)
	}
	return !samePod(uses)
}

func isInstance(d *collector.Device) bool {
	return d.Level == field.Instance || d.Level == field.ComputeInstance
}

func equalAnswers(a, b answer) bool {
	return a.split == b.split && slices.EqualFunc(a.owners, b.owners, equalOwners)
}

func equalOwners(a, b exposition.Owner) bool {
	return slices.Equal(a.Labels, b.Labels) && slices.Equal(a.PodLabels, b.PodLabels)
}
