package fleet

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"warpgauge/pkg/file"
)

const (
	stateFile     = "fleet.json"
	beforeFile    = "fleet.before.json" // the state before the last write
	lockFile      = "fleet.lock"
	maxStateBytes = 512 << 20 // this server never writes a larger file
	stateFormat   = 2         // format 1, of version 0.1.0, was another file
)

// store replaces the state file with each write, and keeps the former one. A write returns when the state is on disk.
type store struct {
	dir     file.Private
	lock    *os.File // locks out a second server
	last    []byte   // the good content on disk
	damaged error    // of the newest state; that before it is in use
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
	if err != nil {
		s.damaged = err
		if state, err = s.read(beforeFile); err == nil && s.last == nil {
			err = errors.New("there is none before it")
		}
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w; without the files %s and %s each cohort begins with its first stage", s.damaged, stateFile, beforeFile), err, lock.Close())
	}
	return s, state, nil
}

// read reads a state; without the file it is empty.
func (s *store) read(name string) (*saved, error) {
	state := newSaved()
	text, err := s.dir.Read(name, maxStateBytes)
	if err == nil && text != nil {
		err = state.decode(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read state %q: %w", name, err)
	}
	s.last = text
	return state, nil
}

// decode parses the file's content: the checksum of the rest in the first line, except in files of version 0.1.0.
func (a *saved) decode(text []byte) error {
	if sum, rest, _ := bytes.Cut(text, []byte("\n")); !bytes.HasPrefix(text, []byte("{")) {
		if string(sum) != checksum(rest) {
			return errors.New("it is damaged: its checksum differs")
		}
		text = rest
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
	if err == nil && s.last != nil {
		err = s.dir.Write(beforeFile, s.last)
	}
	if err == nil {
		err = s.dir.Write(stateFile, text)
	}
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	s.last = text
	return nil
}

func (s *store) close() error { return s.lock.Close() }
