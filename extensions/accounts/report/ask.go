package report

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"sync"

	"warpgauge/pkg/config"
)

// Node answers for the accounts of one exporter. *apiv1.Client implements it.
type Node interface {
	URL() string
	// Get decodes the answer of /api/v1/NAME. If there is no such path, the error is an fs.ErrNotExist.
	Get(ctx context.Context, name string, q url.Values, out any) error
}

const maxAsking = 32 // nodes asked in parallel

// IDOf returns the ID of the owner that a person names: 1234 for a job, NAMESPACE/POD for a pod, or an ID.
func IDOf(name string) string {
	kind, _, _ := strings.Cut(name, ":")
	namespace, pod, isPod := strings.Cut(name, "/")
	switch {
	case kind == KindJob || kind == KindPod || kind == KindNobody || kind == KindUnattributed:
		return name
	case isPod:
		return KindPod + ":" + namespace + ":" + pod
	}
	return KindJob + ":" + name
}

// Ask asks nodes for an owner and adds up their reports. An ID of a pod without its uid means the newest one. The error has a line
// for each node that does not answer; the report is then from the others. If no node knows the owner, the report is nil.
func Ask[N Node](ctx context.Context, id string, nodes []N) (*Report, error) {
	answers, errs := make([]*Report, len(nodes)), make([]error, len(nodes))
	asking := make(chan struct{}, maxAsking)
	var wg sync.WaitGroup
	for i, n := range nodes {
		asking <- struct{}{}
		wg.Go(func() {
			var err error
			if answers[i], err = ask(ctx, id, n); err != nil {
				errs[i] = errors.New(config.OneLine(err.Error())) // others choose parts of the text
			}
			<-asking
		})
	}
	wg.Wait()
	answers = slices.DeleteFunc(answers, func(r *Report) bool { return r == nil })
	if len(answers) == 0 {
		return nil, errors.Join(errors.Join(errs...), fmt.Errorf("no exporter that answers knows %s", id))
	}
	newest := slices.MaxFunc(answers, func(a, b *Report) int { return a.Came.Compare(b.Came) })
	var same []Report
	for _, a := range answers {
		if a.ID == newest.ID {
			same = append(same, *a)
		}
	}
	r, err := Merge(same)
	return r, errors.Join(errors.Join(errs...), err)
}

// ask returns a node's report, nil if the node does not know the owner.
func ask(ctx context.Context, id string, n Node) (*Report, error) {
	var r Report
	err := n.Get(ctx, "owners/"+url.PathEscape(id), nil, &r)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err = n.Get(ctx, "owners", nil, new(struct{})); errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("exporter at %s: it keeps no accounts: start it with --accounts", n.URL())
		}
		return nil, err
	case err != nil:
		return nil, err
	case r.ID != id && !(strings.HasPrefix(id, KindPod+":") && strings.HasPrefix(r.ID, id+":")):
		return nil, fmt.Errorf("exporter at %s: it reports %q instead of %q", n.URL(), r.ID, id)
	}
	return &r, nil
}
