package fleet

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"warpgauge/pkg/file"
)

const (
	stateFile     = "fleet.json"
	copyFile      = "fleet.copy.json"
	lockFile      = "fleet.lock"
	maxStateBytes = 512 << 20 // this server never writes a larger file
	stateFormat   = 2         // format 1, of version 0.1.0, was another file
)

// store replaces the state file and its copy with each write. A write returns when the state is on disk.
type store struct {
	dir     file.Private
	lock    *os.File // locks out a second server
	damaged error    // of the state file, or it is not there; the copy is in use
}

// saved is the state that survives a restart.
type saved struct {
	lists   map[string]*List
	cohorts map[string]*status
	bound   map[UID]*bound
	lastID  uint64 // last rollout id

	lastAgent uint64 // last bound.Number
}

func newSaved() *saved {
	return &saved{lists: map[string]*List{}, cohorts: map[string]*status{}, bound: map[UID]*bound{}}
}

// document is the content of the file.
type document struct {
	Format  int                       `json:"format"`
	Lists   map[string]*List          `json:"lists"`
	Cohorts map[string]*status        `json:"cohorts"`
	Members map[string]map[UID]member `json:"members"` // by cohort
	Agents  map[UID]*bound            `json:"agents"`
}

// openStore locks a directory and reads its state.
func openStore(dir file.Private) (*store, *saved, error) {
	lock, err := dir.Lock(lockFile)
	if err != nil {
		return nil, nil, err
	}
	s := &store{dir: dir, lock: lock}
	state, err := s.read(stateFile)
	if err == nil {
		return s, state, nil
	}
	state, none := s.read(copyFile)
	switch {
	case none == nil:
		s.damaged = err
		return s, state, nil
	case errors.Is(err, fs.ErrNotExist) && errors.Is(none, fs.ErrNotExist):
		return s, newSaved(), nil
	}
	return nil, nil, errors.Join(fmt.Errorf("%w; without the files %s and %s each cohort begins with its first stage", err, stateFile, copyFile), none, lock.Close())
}

// read reads a state.
func (s *store) read(name string) (*saved, error) {
	state := newSaved()
	text, err := s.dir.Read(name, maxStateBytes)
	if err == nil && text == nil {
		err = fs.ErrNotExist
	}
	if err == nil {
		err = state.decode(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read state %q: %w", name, err)
	}
	return state, nil
}

// decode parses the file's content, whose first line is the checksum of the rest.
func (a *saved) decode(text []byte) error {
	sum, text, _ := bytes.Cut(text, []byte("\n"))
	if string(sum) != checksum(text) {
		return errors.New("it is damaged: its checksum differs")
	}
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
	for uid, b := range d.Agents {
		if b == nil {
			return fmt.Errorf("agent %s has no credential", uid)
		}
		a.bound[uid], a.lastAgent = b, max(a.lastAgent, b.Number)
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
	text, err := json.Marshal(document{Format: stateFormat, Lists: a.lists, Cohorts: a.cohorts, Members: members, Agents: a.bound})
	return append([]byte(checksum(text)+"\n"), text...), err
}

// checksum returns the SHA-256 in hex.
func checksum(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

func (s *store) write(state *saved) error {
	text, err := state.encode()
	if err == nil {
		err = s.dir.Write(copyFile, text)
	}
	if err == nil {
		err = s.dir.Write(stateFile, text)
	}
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}
