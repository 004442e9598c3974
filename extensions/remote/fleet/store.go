package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"warpgauge/pkg/file"
)

const (
	stateFile     = "fleet.json"
	lockFile      = "fleet.lock"
	maxStateBytes = 512 << 20 // this server never writes a larger file
	stateFormat   = 2         // format 1, of version 0.1.0, was another file
)

// store replaces the state file with each write. A write returns when the state is on disk.
type store struct {
	dir  file.Private
	lock *os.File // locks out a second server
}

// saved is the state that survives a restart.
type saved struct {
	lists   map[string]*List
	cohorts map[string]*status
	lastID  uint64 // last rollout id
}

func newSaved() *saved { return &saved{lists: map[string]*List{}, cohorts: map[string]*status{}} }

// document is the content of the file.
type document struct {
	Format  int                       `json:"format"`
	Lists   map[string]*List          `json:"lists"`
	Cohorts map[string]*status        `json:"cohorts"`
	Members map[string]map[UID]member `json:"members"` // by cohort
}

// openStore locks a directory and reads its state.
func openStore(dir file.Private) (*store, *saved, error) {
	lock, err := dir.Lock(lockFile)
	if err != nil {
		return nil, nil, err
	}
	state := newSaved()
	text, err := dir.Read(stateFile, maxStateBytes)
	if err == nil && text != nil {
		err = state.decode(text)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read state %q: %w", stateFile, err), lock.Close())
	}
	return &store{dir: dir, lock: lock}, state, nil
}

// decode parses the file's content.
func (a *saved) decode(text []byte) error {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	if d.Format > stateFormat {
		return fmt.Errorf("format %d is of a later version", d.Format)
	}
	for hash, l := range d.Lists {
		if l == nil || l.Hash != hash || newList(l.Name, l.Content).Hash != hash {
			return fmt.Errorf("list %s has another hash", hash)
		}
		a.lists[hash] = l
	}
	for name, s := range d.Cohorts {
		if s == nil || s.Name != name {
			return fmt.Errorf("cohort %q has another name", name)
		}
		if r := s.Rollout; r != nil {
			a.lastID = max(a.lastID, r.ID)
			if r.members = d.Members[name]; r.members == nil {
				r.members = map[UID]member{}
			}
		}
		a.cohorts[name] = s
	}
	return nil
}

// encode returns the file's content.
func (a *saved) encode() ([]byte, error) {
	members := map[string]map[UID]member{}
	for name, s := range a.cohorts {
		if s.Rollout != nil {
			members[name] = s.Rollout.members
		}
	}
	return json.Marshal(document{Format: stateFormat, Lists: a.lists, Cohorts: a.cohorts, Members: members})
}

func (s *store) write(state *saved) error {
	text, err := state.encode()
	if err == nil {
		err = s.dir.Write(stateFile, text)
	}
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

func (s *store) close() error { return s.lock.Close() }
