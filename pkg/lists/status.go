package lists

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// List is a field list that can be in service. It must not be changed.
type List struct {
	Origin   string    // path, ConfigMap, "built-in …" or a URL without secrets
	Revision string    // the server's name for it
	Hash     string    // SHA-256, hex
	Until    time.Time // when the previous list returns; zero: never
	Fields   field.List
}

// Answer is the result of a proposal. The texts are labels.
type Answer string

// Answers.
const (
	Waiting     Answer = "waiting" // nothing was proposed yet, a server's list is in service, or a release continues
	Applied     Answer = "applied"
	Unchanged   Answer = "unchanged" // it is in service already
	Reported    Answer = "reported"  // compared only, with --remote-config=report
	Refused     Answer = "refused"   // by the parser or the guard
	Failed      Answer = "failed"    // it could not be put into service
	Ended       Answer = "ended"     // its time limit has passed
	Unreachable Answer = "unreachable"
)

// Offer is a field list that a server delivers. It must not be changed.
type Offer struct {
	Origin   string // source without secrets: a URL
	Revision string // the server's name for it: an ETag, the hex of OpAMP's config hash; can be empty
	Content  []byte // a counters CSV, or a YAML configuration file that contains only a list
	YAML     bool
}

// Outcome is the answer to an Offer.
type Outcome struct {
	Answer  Answer
	Tried   string    // SHA-256 of the Offer's content, hex
	Running string    // hash of the list in service
	Refused []Refusal // faults found by the guard or the parser
	Err     error     // why the current list stays, for the server's operator; nil: the offer serves, or was compared
	Until   time.Time // when the previous list returns by itself; zero: never
}

// Refusal is one fault of a server's list.
type Refusal struct {
	Line int // from 1; 0: the whole list
	Text string
}

// String returns the refusal for messages.
func (r Refusal) String() string {
	if r.Line > 0 {
		return fmt.Sprintf("line %d: %s", r.Line, r.Text)
	}
	return r.Text
}

// Delivery describes the last list proposed by a server, and the answer.
type Delivery struct {
	Mode    string // of --remote-config
	Origin  string // of the server
	Status  Answer
	Text    string    // the reason or the finding, as text
	Tried   string    // hash of the last list
	Refused []Refusal // of that list
	Since   time.Time // of Status and Text
	Unkept  string    // why the list in service is not saved on disk; "": it is saved
	Down    string    // why the server cannot be reached; "": reachable
}

// Condition returns Unreachable while the server cannot be reached, else the status.
func (d *Delivery) Condition() Answer {
	if d.Down != "" {
		return Unreachable
	}
	return d.Status
}

// Bad reports whether the answer requires action.
func (a Answer) Bad() bool { return a == Refused || a == Failed }

// Proposal is a change that was proposed to the Desk, and the answer.
type Proposal struct {
	By     string // a signal, a request, a server's URL
	What   string // reload, list, profiling, release or resume
	At     time.Time
	Answer Answer
	Text   string // why, as text
}

// Kinds of proposals.
const (
	kindReload    = "reload"
	kindList      = "list"
	kindProfiling = "profiling"
	kindRelease   = "release"
	kindResume    = "resume" // of a release
)

// Status describes the list in service and the last proposals with their answers.
type Status struct {
	InService List      // including the fields that a pause omits
	Applied   time.Time // since when
	Local     List      // serves unless a server's list does
	LastError string    // of the last reload; "": none
	FailedAt  time.Time
	Paused    bool       // profiling fields are not read
	Delivery  *Delivery  // nil: there is no server
	Proposals []Proposal // the last one of each kind

	delivered                    bool // InService is a server's
	good                         bool // whether the last reload succeeded
	succeeded                    time.Time
	successes, unchanged, errors uint64
}

// wanted returns the list in service, or the local list that will replace it when a collector can apply it.
func (s *Status) wanted() List {
	if s.delivered {
		return s.InService
	}
	return s.Local
}

// Status returns a copy of the status.
func (d *Desk) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

func (d *Desk) update(change func(*Status)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.status)
}

// propose records a proposal in place of the last one of its kind.
func (s *Status) propose(p Proposal) {
	s.Proposals = append([]Proposal{p}, slices.DeleteFunc(slices.Clone(s.Proposals), func(o Proposal) bool { return o.What == p.What })...)
}

// SetDelivery replaces the state of a server's lists.
func (d *Desk) SetDelivery(v Delivery) {
	var was Delivery
	d.update(func(s *Status) {
		if s.Delivery != nil {
			was = *s.Delivery
		}
		if v.Status != Waiting && !was.Since.Equal(v.Since) {
			s.propose(Proposal{v.Origin, kindList, stamp(v.Since), v.Status, v.Text})
		}
		s.Delivery = &v
	})
	if was.Since.Equal(v.Since) || !v.Status.Bad() && !was.Status.Bad() {
		return
	}
	text := cmp.Or(v.Text, "it is in service")
	if len(v.Refused) > 0 && v.Refused[0].Text != v.Text {
		text += "; " + v.Refused[0].String()
	}
	d.publish("list of the server is "+string(v.Status)+": "+text, v.Status.Bad())
}

// serve records that a list is in service from now on. It clears the error of an earlier reload.
func (d *Desk) serve(l List, delivered bool) {
	l.Until = stamp(l.Until)
	d.update(func(s *Status) {
		s.InService, s.delivered, s.Applied = l, delivered, stamp(time.Now())
		s.LastError, s.FailedAt = "", time.Time{}
	})
}

func (d *Desk) setLocal(in *config.Content, list field.List) {
	d.update(func(s *Status) { s.Local = List{Origin: in.Name, Hash: in.Hash(), Fields: list} })
}

// reloaded records that the local list was read without errors.
func (d *Desk) reloaded(in *config.Content, list field.List, cause string, a Answer) {
	now := time.Now()
	d.setLocal(in, list)
	d.update(func(s *Status) {
		s.LastError, s.FailedAt, s.good, s.succeeded = "", time.Time{}, true, now
		p := Proposal{cause, kindReload, stamp(now), a, ""}
		if s.delivered {
			p.Text = errWaiting.Error()
		} else {
			s.InService = s.Local // its name can be another
		}
		if a == Unchanged {
			s.unchanged++
		} else {
			s.successes++
		}
		s.propose(p)
	})
}

// stamp returns a time with the precision of the status.
func stamp(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}

var (
	descGood = prometheus.NewDesc("warpgauge_config_last_reload_successful",
		"1 if the counters CSV was good when it was read last, 0 if it was not or could not be read: an older list is in service.", nil, nil)
	descSucceeded = prometheus.NewDesc("warpgauge_config_last_reload_success_timestamp_seconds",
		"When the counters CSV was last read with success, in Unix time.", nil, nil)
	descReloads = prometheus.NewDesc("warpgauge_config_reloads_total",
		"Reloads of the counters CSV by result; the first reading at start does not count.", []string{"result"}, nil)
	descList = prometheus.NewDesc("warpgauge_list_info",
		"1, labelled with the field list in service: where it comes from, its SHA-256 (with a configuration file that of both, one after the other), and what a server calls it.",
		[]string{"origin", "hash", "revision"}, nil)
	descApplied = prometheus.NewDesc("warpgauge_list_applied_timestamp_seconds",
		"When the field list in service was applied, in Unix time.", nil, nil)
	descPaused = prometheus.NewDesc("warpgauge_profiling_paused",
		"1 while profiling fields (DCGM_FI_PROF_…) are not read because they are paused.", nil, nil)

	descStatus = prometheus.NewDesc("warpgauge_remote_config_status",
		"1, labelled with what became of the server's list: waiting, applied, reported, refused, failed, ended, or unreachable while the server is.", []string{"status"}, nil)
	descRefused = prometheus.NewDesc("warpgauge_remote_refused_lines",
		"Refusals of the list that the server delivered last; /api/v1/list has them.", nil, nil)
	descUnkept = prometheus.NewDesc("warpgauge_remote_unkept",
		"1 if the list in service could not be kept in --remote-directory, else 0.", nil, nil)
	descUntil = prometheus.NewDesc("warpgauge_list_until_timestamp_seconds",
		"When the list in service ends and the former one returns, in Unix time. Absent if it stays.", nil, nil)
)

// Describe sends the descriptions of the Desk's metrics.
func (*Desk) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descGood, descSucceeded, descReloads, descList, descApplied, descPaused, descStatus, descRefused, descUnkept, descUntil} {
		ch <- d
	}
}

// Collect sends the status as metrics. It waits for nothing.
func (d *Desk) Collect(ch chan<- prometheus.Metric) {
	s := d.Status()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descGood, oneIf(s.good))
	gauge(descSucceeded, float64(s.succeeded.UnixNano())/float64(time.Second))
	for result, n := range map[string]uint64{"success": s.successes, "unchanged": s.unchanged, "error": s.errors} {
		ch <- prometheus.MustNewConstMetric(descReloads, prometheus.CounterValue, float64(n), result)
	}
	gauge(descList, 1, s.InService.Origin, s.InService.Hash, s.InService.Revision)
	gauge(descApplied, float64(s.Applied.UnixMilli())/1000)
	gauge(descPaused, oneIf(s.Paused))
	if v := s.Delivery; v != nil {
		gauge(descStatus, 1, string(v.Condition()))
		gauge(descRefused, float64(len(v.Refused)))
		gauge(descUnkept, oneIf(v.Unkept != ""))
		if u := s.InService.Until; !u.IsZero() {
			gauge(descUntil, float64(u.Unix()))
		}
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
