package owner

import (
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// sureAfter is how long ids must have named no device until the log says so: at the
// start the kubelet answers before libraries have found their devices.
const sureAfter = 30 * time.Second

// teller tells the log of ids that name no device, once per change.
type teller struct {
	seen  []Unmatched // by the last table
	since time.Time
	told  []Unmatched
}

func (l *teller) tell(log *zap.Logger, t *table, now time.Time) {
	if !slices.Equal(l.seen, t.unmatched) {
		l.seen, l.since = t.unmatched, now
	}
	if now.Sub(l.since) < sureAfter || slices.Equal(l.told, l.seen) {
		return
	}
	l.told = l.seen
	if len(l.told) == 0 {
		log.Info("every device that the kubelet names is known")
		return
	}
	log.Warn("the kubelet names devices that are not known: their pods are on no series", zap.Int("ids", len(l.told)), zap.String("device", examples(l.told)))
}

// examples names a few of them.
func examples(list []Unmatched) string {
	const most = 3
	var out []string
	for _, u := range list[:min(len(list), most)] {
		out = append(out, u.Resource+" "+u.ID+" of pod "+u.Namespace+"/"+u.Pod+" ("+u.Reason+")")
	}
	return strings.Join(out, ", ")
}
