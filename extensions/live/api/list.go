package api

import (
	"net/http"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
)

// list returns the answer of /api/v1/list.
func (o *Options) list() (*apiv1.List, error) {
	if o.Lists == nil {
		return nil, &apiv1.Problem{Status: http.StatusNotFound, Detail: "no field list is known: this is a recording"}
	}
	s := o.Lists.Status()
	now := &s.InService
	out := &apiv1.List{
		Source: now.Origin, Hash: now.Hash, Revision: now.Revision, Applied: s.Applied, Until: known(now.Until), LastError: s.LastError, FailedAt: known(s.FailedAt),
		Remote: remoteList(&s), Proposals: make([]apiv1.ListProposal, 0, len(s.Proposals)), Fields: make([]apiv1.ListField, 0, len(now.Fields.Fields)),
	}
	for _, p := range s.Proposals {
		out.Proposals = append(out.Proposals, apiv1.ListProposal{By: p.By, What: p.What, At: p.At, Answer: string(p.Answer), Text: p.Text})
	}
	intervals := o.intervals(now.Fields)
	for i := range now.Fields.Fields {
		f := &now.Fields.Fields[i]
		l := apiv1.ListField{Name: f.Name, Type: f.Type.String(), Help: f.Help, Unit: unitOf(f), Interval: intervals[readingOf(f)].Seconds()}
		if f.Type != field.Label {
			if d := now.Fields.Dialect; d == nil || !d.InPlace {
				l.Metric = f.Name
			}
			for _, m := range f.Desc.Meanings {
				l.Roles = append(l.Roles, apiv1.Role{Role: string(m.Role), Label: m.Label, Rank: m.Rank})
			}
		}
		out.Fields = append(out.Fields, l)
	}
	return out, nil
}

// intervals returns the interval of each reading in a list.
func (o *Options) intervals(list field.List) map[field.ID]time.Duration {
	out := map[field.ID]time.Duration{}
	for _, r := range list.Readings() {
		out[r.Desc.ID] = o.Node.Interval(r)
	}
	return out
}

// remoteList describes the outcome of a server's list, or returns nil if no server is configured.
func remoteList(s *lists.Status) *apiv1.RemoteList {
	d := s.Delivery
	if d == nil {
		return nil
	}
	out := &apiv1.RemoteList{
		Mode: d.Mode, Status: string(d.Condition()), Text: d.Text, Since: timeOf(d.Since),
		Hash: d.Tried, Unreachable: d.Down, Unkept: d.Unkept, Local: s.Local.Hash,
	}
	for _, r := range d.Refused {
		out.Refused = append(out.Refused, apiv1.Refusal(r))
	}
	return out
}
