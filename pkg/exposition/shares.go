package exposition

import (
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// shareSeries shows what a user takes of a reading.
type shareSeries struct {
	labels *labelSet
	scale  field.Scale
	value  int32 // in snapshot.shares
	device int32 // in snapshot.live
}

// addShares adds a series for every Share, metric field of its reading and source
// that has its device: of those sources one at most is on a page.
func (b *builder) addShares(shares *Shares) {
	if shares == nil || len(shares.Series) == 0 {
		return
	}
	of := map[string][]int{}
	for i := range shares.Series {
		id := shares.Series[i].Device
		of[id] = append(of[id], i)
	}
	for i, s := range b.layout.view.Sources {
		b.addSharesOf(i, s, shares, of)
	}
}

func (b *builder) addSharesOf(index int, s *view.Source, shares *Shares, of map[string][]int) {
	byReading := metricsByReading(s)
	labels := b.newDeviceLabels()
	for d := range s.Devices {
		if !ownable(&s.Devices[d]) {
			continue
		}
		_, device := b.roster.at(index, 0, d)
		for _, at := range of[s.Devices[d].ID] {
			share := &shares.Series[at]
			fields := byReading[share.Field]
			if len(fields) == 0 {
				continue
			}
			labels.turn(&s.Devices[d])
			set := labels.one(&share.Owner, nil, false)
			for _, f := range fields {
				b.addShare(f, set, int32(at), device)
			}
		}
	}
}

func (b *builder) addShare(f *field.Field, set *labelSet, at, device int32) {
	fam := b.family(f, kindOf(f.Type))
	switch {
	case fam == nil:
		b.layout.stats.misfits++
	case b.claim(fam, set, device):
		fam.shares = append(fam.shares, shareSeries{labels: set, scale: field.NewScale(f.Scale), value: at, device: device})
	}
}
