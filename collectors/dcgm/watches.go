//go:build linux && cgo

package dcgm

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// watches are what the collectors of a session have asked the engine to read. The
// engine keeps one watch for each client, entity and field, however often the client
// has asked: a second one changes the interval of the first, and either taken back
// ends both, though the engine goes on answering with what it read last. So at a
// reload, when one collector takes over from another, what the other still reads is
// not taken back, and is asked for again as the other wants it.
type watches struct {
	mu   sync.Mutex // held during calls that may hang, as their callers may
	live []*watch
}

// watch is one call of dcgmWatchFields. It does not change.
type watch struct {
	kind     entityKind
	entities []entity
	fields   []uint16

	group, fieldGroup handleID
	every, keep       time.Duration
}

// add makes the engine read what w says.
func (ws *watches) add(e *engine, w *watch) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if err := e.watch(w.group, w.fieldGroup, w.every, w.keep); err != nil {
		ws.renew(e, w) // it may have been taken for some of the fields
		return err
	}
	ws.live = append(ws.live, w)
	return nil
}

// remove takes w back, but for what others read.
func (ws *watches) remove(e *engine, w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.live = slices.DeleteFunc(ws.live, func(o *watch) bool { return o == w })
	if alone, ok := ws.alone(w); !ok || len(alone) == len(w.fields) || e.unwatchSome(w.group, alone) != nil {
		_ = e.unwatch(w.group, w.fieldGroup)
	}
	ws.renew(e, w)
}

// alone are the fields of w that no other watch has of its entities; false where
// another one has some of the entities and not all, so that it cannot be told by
// field.
func (ws *watches) alone(w *watch) (fields []uint16, ok bool) {
	fields = slices.Clone(w.fields)
	for _, o := range ws.live {
		if !o.overlaps(w) {
			continue
		}
		if !w.within(o) {
			return nil, false
		}
		fields = slices.DeleteFunc(fields, func(f uint16) bool { return slices.Contains(o.fields, f) })
	}
	return fields, true
}

// renew asks again for what other watches have in common with w.
func (ws *watches) renew(e *engine, w *watch) {
	if e.gone.Load() {
		return
	}
	for _, o := range ws.live {
		if o.overlaps(w) {
			_ = e.watch(o.group, o.fieldGroup, o.every, o.keep) // where it fails the connection is lost, and the next read says so
		}
	}
}

func (w *watch) overlaps(o *watch) bool {
	return w.kind == o.kind &&
		slices.ContainsFunc(w.entities, func(e entity) bool { return slices.Contains(o.entities, e) }) &&
		slices.ContainsFunc(w.fields, func(f uint16) bool { return slices.Contains(o.fields, f) })
}

// within reports whether o has all entities of w.
func (w *watch) within(o *watch) bool {
	return !slices.ContainsFunc(w.entities, func(e entity) bool { return !slices.Contains(o.entities, e) })
}

// unwatchSome ends the watch of some fields of a group, by a field group that is there
// for that alone.
func (e *engine) unwatchSome(group handleID, fields []uint16) error {
	if len(fields) == 0 {
		return nil
	}
	id, err := e.createFields(fmt.Sprintf("warpgauge-%d-end", nextGroup.Add(1)), fields)
	if err != nil {
		return err
	}
	err = e.unwatch(group, id)
	_ = e.destroyFields(id)
	return err
}
