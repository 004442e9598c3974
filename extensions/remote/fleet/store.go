package fleet

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"

	"warpgauge/pkg/file"
)

const (
	stateFile     = "fleet.jsonl"
	lockFile      = "fleet.lock"
	maxStateBytes = 512 << 20 // a larger file is not from this server
	stateFormat   = 1
)

// store is the file of the state, which each write replaces. A write returns when the state is on the disk.
type store struct {
	root *os.Root
	lock *os.File // held against a second server
}

// line is one line of the file: one of these is set. It replaces what an earlier line says of the same thing.
type line struct {
	Format  int         `json:"format,omitempty"`
	List    *List       `json:"list,omitempty"`
	Cohort  *status     `json:"cohort,omitempty"`
	Members *memberLine `json:"members,omitempty"`
}

// memberLine adds members to a rollout.
type memberLine struct {
	Cohort  string         `json:"cohort"`
	Rollout uint64         `json:"rollout"`
	Agents  map[UID]member `json:"agents"`
}

// saved is the state that outlives the process.
type saved struct {
	lists   map[string]*List
	cohorts map[string]*status
	lastID  uint64 // of a rollout
}

// openStore locks a directory and reads its state.
func openStore(root *os.Root) (*store, *saved, error) {
	lock, err := root.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o600) // NFS locks only files that are open for writing
	if err != nil {
		return nil, nil, fmt.Errorf("open state: %w", err)
	}
	state := newSaved()
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		err = fmt.Errorf("another server has it: %w", err)
	} else {
		err = state.load(root)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read state %q: %w", stateFile, err), lock.Close())
	}
	return &store{root: root, lock: lock}, state, nil
}

func newSaved() *saved { return &saved{lists: map[string]*List{}, cohorts: map[string]*status{}} }

func (a *saved) load(root *os.Root) error {
	f, err := root.Open(stateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it is only read
	if info, err := f.Stat(); err != nil {
		return err
	} else if info.Size() > maxStateBytes {
		return fmt.Errorf("%w: %d bytes", file.ErrTooLarge, info.Size())
	}
	return a.read(f)
}

// read reads lines up to the last whole one. Version 0.1.0 appended to the file, so its last line may lack the end.
func (a *saved) read(r io.Reader) error {
	in := bufio.NewReaderSize(r, 1<<16)
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		var l line
		if err == nil {
			err = json.Unmarshal(text, &l)
		}
		if err == nil {
			err = a.addLine(&l)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}

func (a *saved) addLine(l *line) error {
	switch {
	case l.Format > stateFormat:
		return fmt.Errorf("format %d is of a later version", l.Format)
	case l.List != nil:
		if got := newList(l.List.Name, l.List.Content).Hash; got != l.List.Hash {
			return fmt.Errorf("a list has hash %s, not %s", got, l.List.Hash)
		}
		a.lists[l.List.Hash] = l.List
	case l.Cohort != nil:
		c := l.Cohort
		if c.Rollout != nil {
			c.Rollout.members = map[UID]member{}
			a.lastID = max(a.lastID, c.Rollout.ID)
			if old := a.cohorts[c.Name]; old != nil && old.Rollout != nil && old.Rollout.ID == c.Rollout.ID {
				c.Rollout.members = old.Rollout.members
			}
		}
		a.cohorts[c.Name] = c
	case l.Members != nil:
		// Other rollouts are over.
		if c := a.cohorts[l.Members.Cohort]; c != nil && c.Rollout != nil && c.Rollout.ID == l.Members.Rollout {
			maps.Copy(c.Rollout.members, l.Members.Agents)
		}
	}
	return nil
}

// write writes the lines of the whole state.
func (a *saved) write(w io.Writer) error {
	lines := []line{{Format: stateFormat}}
	for _, hash := range slices.Sorted(maps.Keys(a.lists)) {
		lines = append(lines, line{List: a.lists[hash]})
	}
	for _, name := range slices.Sorted(maps.Keys(a.cohorts)) {
		s := a.cohorts[name]
		lines = append(lines, line{Cohort: s})
		if r := s.Rollout; r != nil && len(r.members) > 0 {
			lines = append(lines, line{Members: &memberLine{Cohort: name, Rollout: r.ID, Agents: r.members}})
		}
	}
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	for i := range lines {
		if err := e.Encode(&lines[i]); err != nil {
			return err
		}
	}
	return b.Flush()
}

func (s *store) write(state *saved) error {
	_ = s.root.Remove("." + stateFile) // of a process that was killed while it wrote
	if err := file.WriteWhole(s.root, stateFile, state.write); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

func (s *store) close() error { return s.lock.Close() }
