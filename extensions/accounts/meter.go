package accounts

import "time"

// meter follows a board's energy counter, mJ.
type meter struct {
	started bool
	last    float64
	at      int64 // when it was read first with this value, ns
	low     float64
	lowAt   int64 // since when the counter is below last, or above what a board can use; 0: it is not
	stuck   bool  // it has stopped or is not read, so energy is counted from power
	owed    int64 // µJ counted from power that the counter may still count
}

const (
	// resetAfter is how long a counter must be lower to have begun again: after a takeover the first values of the other
	// library can be older than the last ones.
	resetAfter = int64(10 * time.Second)
	// stuckAfter is how long a counter must not change, while the board uses power, to count as stopped.
	stuckAfter = int64(time.Minute)
	// A board uses less than 20 kW. What it uses in a moment can be shown late.
	maxPerNano, maxAtOnce = 20, 10_000_000_000 // µJ
)

// advance reads the counter. It returns its growth since the time from, in µJ, and its growth between a reset and the first value
// after it, whose time is unknown. Together they are all the energy that the counter has counted.
func (m *meter) advance(v, power float64, at int64) (grown int64, from int64, lost int64) {
	m.at, m.lowAt = min(m.at, at), min(m.lowAt, at) // the clock may have been set back
	switch {
	case v < m.last && m.lowAt == 0:
		m.low, m.lowAt = v, at
		return 0, at, 0
	case v < m.last && at-m.lowAt < resetAfter:
		return 0, at, 0
	case v < m.last:
		lost = micro(m.low)
		m.last, m.at, m.owed = m.low, m.lowAt, 0
	}
	if jump := micro(v) - micro(m.last); jump > maxAtOnce+maxPerNano*(at-m.at) {
		switch {
		case m.lowAt == 0:
			m.low, m.lowAt = v, at
		case at-m.lowAt >= resetAfter: // it continues from another value
			m.last, m.at, m.lowAt, m.owed = v, at, 0, 0
		}
		return 0, at, lost
	}
	m.lowAt = 0
	if v == m.last {
		m.stuck = m.stuck || at-m.at > stuckAfter && power > 0
		return 0, at, lost
	}
	grown, from = micro(v)-micro(m.last), m.at
	known := min(m.owed, grown)
	m.last, m.at, m.stuck, m.owed = v, at, false, m.owed-known
	return grown - known, from, lost
}

// micro converts mJ to µJ.
func micro(v float64) int64 { return int64(v * 1000) }
