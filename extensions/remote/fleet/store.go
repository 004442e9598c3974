package fleet

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"syscall"

	"warpgauge/pkg/file"
)

const (
	stateFile     = "fleet.jsonl"
	maxStateBytes = 512 << 20 // a larger file is not from this server
	compactBytes  = 16 << 20  // and twice the needed size: the file is written again
	stateFormat   = 1
)

// store is the append-only file. Each line is whole in itself and replaces what an earlier one says of the
// same thing. A call returns when the line is on the disk.
type store struct {
	root *os.Root
	f    *os.File
	good int64 // length of the file that is known to be whole
	live int64 // length after the last compaction
}

// line is one line of the file: one of these is set.
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

// saved is the content of the file.
type saved struct {
	lists   map[string]*List
	cohorts map[string]*status
	last    uint64 // ID of a rollout
}

// openStore opens the file in a directory and reads it. What a killed process has left unfinished at the end is
// cut off; a line before it that cannot be read is an error.
func openStore(root *os.Root) (*store, *saved, error) {
	f, err := root.OpenFile(stateFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("open state: %w", err)
	}
	s := &store{root: root, f: f}
	state, err := s.load()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("read state %q: %w", f.Name(), err), f.Close())
	}
	return s, state, nil
}

func (s *store) load() (*saved, error) {
	if err := s.lock(); err != nil {
		return nil, err
	}
	info, err := s.f.Stat()
	if err == nil && info.Size() > maxStateBytes {
		err = fmt.Errorf("%w: %d bytes", file.ErrTooLarge, info.Size())
	}
	if err != nil {
		return nil, err
	}
	state, good, err := readState(s.f)
	s.good, s.live = good, good
	if err != nil {
		return nil, err
	}
	return state, s.f.Truncate(good)
}

// readState reads lines up to the last whole one, and returns how many bytes those have.
func readState(r io.Reader) (state *saved, good int64, err error) {
	state = &saved{lists: map[string]*List{}, cohorts: map[string]*status{}}
	in := bufio.NewReaderSize(r, 1<<16)
	for n := 1; ; n++ {
		text, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return state, good, nil // a line without an end was not finished
		}
		if err != nil {
			return nil, good, err
		}
		var l line
		if err = json.Unmarshal(text, &l); err == nil {
			err = state.addLine(&l)
		}
		if err != nil {
			return nil, good, fmt.Errorf("line %d: %w", n, err)
		}
		good += int64(len(text))
	}
}

// lock keeps two servers from one file.
func (s *store) lock() error {
	if err := syscall.Flock(int(s.f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("another server has it: %w", err)
	}
	return nil
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
			a.last = max(a.last, c.Rollout.ID)
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

// append writes lines, all or none.
func (s *store) append(lines ...line) error {
	var b bytes.Buffer
	err := encode(&b, lines)
	if err == nil {
		_, err = s.f.WriteAt(b.Bytes(), s.good)
	}
	if err == nil {
		err = s.f.Sync()
	}
	if err != nil {
		_ = s.f.Truncate(s.good) // else the next line overwrites it, and a start cuts it off
		return fmt.Errorf("write state: %w", err)
	}
	s.good += int64(b.Len())
	return nil
}

func encode(w io.Writer, lines []line) error {
	e := json.NewEncoder(w)
	for i := range lines {
		if err := e.Encode(&lines[i]); err != nil {
			return err
		}
	}
	return nil
}

// full says whether the file has grown so much that it should be written again.
func (s *store) full() bool { return s.good > compactBytes && s.good > 2*s.live }

// compact writes the file again, with the needed lines only.
func (s *store) compact(lines []line) error {
	_ = s.root.Remove("." + stateFile) // of a process that was killed here
	err := file.WriteWhole(s.root, stateFile, func(w io.Writer) error {
		b := bufio.NewWriter(w)
		return errors.Join(encode(b, lines), b.Flush())
	})
	if err != nil {
		return fmt.Errorf("compact state: %w", err)
	}
	f, err := s.root.OpenFile(stateFile, os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("compact state: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("compact state: %w", err), f.Close())
	}
	_ = s.f.Close() // it has no name any more
	s.f, s.good, s.live = f, info.Size(), info.Size()
	return s.lock()
}

func (s *store) close() error { return s.f.Close() }
