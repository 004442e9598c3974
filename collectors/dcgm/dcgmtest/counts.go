package dcgmtest

import "maps"

// Counts are the resources that clients of all processes hold. A killed process leaves its share behind.
type Counts struct {
	Inits         int // processes that are initialised
	Connections   int
	Embedded      int
	Groups        int
	FieldGroups   int
	Watches       int // pairs of group and field group
	HealthWatches int // groups
}

// Counts returns the resources that clients hold now.
func (e *Engine) Counts() Counts {
	n := func(w int) int { return int(e.word(w)) }
	return Counts{
		Inits: n(wordInits), Connections: n(wordConnections), Embedded: n(wordEmbedded),
		Groups: n(wordGroups), FieldGroups: n(wordFieldGroups), Watches: n(wordWatches), HealthWatches: n(wordHealthWatches),
	}
}

func (e *Engine) word(w int) uint64 {
	v, err := e.lib.Control.Read(w)
	if err != nil {
		e.fail(err)
	}
	return v
}

// Calls returns how often all processes have called a function since ResetCalls.
func (e *Engine) Calls(function string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return int(e.allCalls()[function] - e.calls[function])
}

func (e *Engine) allCalls() map[string]uint64 {
	out := map[string]uint64{}
	for i, f := range functions() {
		n, err := e.lib.Control.Calls(i)
		if err != nil {
			e.fail(err)
		}
		out[f.Name] = n
	}
	return out
}

// ResetCalls resets the counts of calls and the result of MostValues.
func (e *Engine) ResetCalls() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = maps.Clone(e.allCalls())
	if err := e.lib.Control.Write(wordMostValues, 0); err != nil {
		e.fail(err)
	}
}

// MostValues returns the number of values in the largest reply.
func (e *Engine) MostValues() int { return int(e.word(wordMostValues)) }

// Log returns the log file of an embedded engine ("" for none) and the severity; false if none was started.
func (e *Engine) Log() (file string, severity int, ok bool) {
	s := e.word(wordSeverity)
	if s == 0 {
		return "", 0, false
	}
	return e.lib.Control.Text(), int(s - 1), true
}

// Functions lists the functions that can be counted and made to fail.
func Functions() (names []string) {
	for _, f := range functions() {
		names = append(names, f.Name)
	}
	return names
}
