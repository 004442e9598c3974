package owner

import (
	"slices"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/podmeta"
)

// names are what labels are called.
type names struct{ uuid, namespace, pod, container string }

// namesOf returns the names, or those of before dcgm-exporter 2.0.
func namesOf(old bool) names {
	if old {
		return names{"uuid", "pod_namespace", "pod_name", "container_name"}
	}
	return names{"UUID", "namespace", "pod", "container"}
}

// people knows pods: their uids and labels.
type people struct {
	uids   map[podmeta.PodName]string
	labels map[podmeta.PodName][]collector.Label
}

func newPeople() people {
	return people{uids: map[podmeta.PodName]string{}, labels: map[podmeta.PodName][]collector.Label{}}
}

// renderer makes labels of uses.
type renderer struct {
	names   names
	people  *people
	uid     bool // label pod_uid
	virtual bool
}

// owners returns the users of a device as its series show them.
func (r *renderer) owners(uses []use, jobs []string) []exposition.Owner {
	return withJobs(r.pods(uses), jobs)
}

func (r *renderer) pods(uses []use) []exposition.Owner {
	switch {
	case len(uses) == 0:
		return nil
	case r.virtual:
		out := make([]exposition.Owner, 0, len(uses))
		for i := range uses {
			out = append(out, r.owner(uses[i:i+1], r.uid))
		}
		return out
	case !samePod(uses):
		return nil // it belongs to none of them
	}
	return []exposition.Owner{r.owner(uses, r.uid)}
}

// owner returns one user that all uses, of one pod, are together: with the labels
// that they have in common.
func (r *renderer) owner(uses []use, uid bool) exposition.Owner {
	u := &uses[0]
	labels := make([]collector.Label, 0, 5+len(u.claim))
	if u.container != "" && sameContainer(uses) {
		labels = append(labels, collector.Label{Name: r.names.container, Value: u.container})
	}
	labels = append(labels, collector.Label{Name: r.names.namespace, Value: u.pod.Namespace}, collector.Label{Name: r.names.pod, Value: u.pod.Name})
	if known := r.people.uids[u.pod]; uid && known != "" {
		labels = append(labels, collector.Label{Name: "pod_uid", Value: known})
	}
	if r.virtual && u.replica != "" && !slices.ContainsFunc(uses, func(o use) bool { return o.replica != u.replica }) {
		labels = append(labels, collector.Label{Name: "vgpu", Value: u.replica})
	}
	for _, l := range u.claim {
		if !slices.ContainsFunc(uses, func(o use) bool { return !slices.Contains(o.claim, l) }) {
			labels = append(labels, l)
		}
	}
	slices.SortFunc(labels, compareLabels)
	return exposition.Owner{PodLabels: r.people.labels[u.pod], Labels: labels}
}

// withJobs copies each owner for each job; without owners the jobs are.
func withJobs(owners []exposition.Owner, jobs []string) []exposition.Owner {
	if len(jobs) == 0 {
		return owners
	}
	if len(owners) == 0 {
		owners = []exposition.Owner{{}}
	}
	out := make([]exposition.Owner, 0, len(owners)*len(jobs))
	for _, o := range owners {
		for _, job := range jobs {
			labels := append(slices.Clone(o.Labels), collector.Label{Name: "hpc_job", Value: job})
			slices.SortFunc(labels, compareLabels)
			out = append(out, exposition.Owner{PodLabels: o.PodLabels, Labels: labels})
		}
	}
	return out
}
