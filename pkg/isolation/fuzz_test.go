package isolation

import (
	"bytes"
	"reflect"
	"testing"

	"warpgauge/pkg/field"

	"go.uber.org/zap"
)

type reflectType = reflect.Type

// FuzzMessage reads what a child gone mad may send. What is accepted must be
// within bounds and come back equal when it is sent again.
func FuzzMessage(f *testing.F) {
	for k, m := range examples() {
		f.Add(uint8(k), marshal(m))
	}
	f.Fuzz(func(t *testing.T, k uint8, payload []byte) {
		m := blank(kind(k))
		if m == nil || unmarshal(payload, m) != nil {
			return
		}
		again := marshal(m)
		second := blank(kind(k))
		if err := unmarshal(again, second); err != nil {
			t.Fatalf("message %d was accepted and is not, sent again: %v", k, err)
		}
		if !bytes.Equal(marshal(second), again) {
			t.Fatalf("message %d changes from sending to sending", k)
		}
	})
}

// FuzzFrames reads a stream of junk: it must end, with no frame over the limit.
func FuzzFrames(f *testing.F) {
	var stream []byte
	for k, m := range examples() {
		stream, _ = appendFrame(stream, k, marshal(m))
	}
	f.Add(stream)
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := frames{r: bytes.NewReader(stream)}
		for {
			_, p, err := r.next()
			if err != nil {
				return
			}
			if len(p) > len(stream) {
				t.Fatalf("%d bytes of payload from a stream of %d", len(p), len(stream))
			}
		}
	})
}

// FuzzSession lets the parent take junk as messages with right checksums, in any
// order. It must neither panic nor hold more than the bounds allow.
func FuzzSession(f *testing.F) {
	all := examples()
	for _, k := range []kind{kindSource, kindService, kindStatus, kindMetrics, kindLog, kindRelease, kindReloaded} {
		f.Add(uint8(k), marshal(all[k]), uint8(kindService), marshal(all[kindService]))
	}
	f.Fuzz(func(t *testing.T, k1 uint8, p1 []byte, k2 uint8, p2 []byte) {
		o := (&Options{Name: "fuzz"}).withDefaults()
		s := &session{
			o: &o, log: zap.NewNop(), relay: &relay{log: zap.NewNop()}, notify: func() {},
			lists: map[uint64]field.List{1: {}, 3: {}},
		}
		l := &ledger{collector: "fuzz", bound: map[uint64]*boundSource{}, lists: s.lists}
		for _, m := range []struct {
			k uint8
			p []byte
		}{{k1, p1}, {k2, p2}, {k1, p1}} {
			if kind(m.k) == kindSource { // without the channel, which there is none of
				b, region, problem, err := l.bind(m.p)
				if err != nil {
					return
				}
				if problem == nil {
					_ = region.CloseFD()
					if ringBytes(&b.source) > maxMemory {
						t.Fatalf("%d bytes for a ring", ringBytes(&b.source))
					}
				}
				continue
			}
			if s.take(kind(m.k), m.p, l) != nil {
				return
			}
		}
	})
}
