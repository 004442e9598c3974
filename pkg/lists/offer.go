package lists

import (
	"fmt"
	"time"
)

// Offer is a field list that a server delivers. It must not be changed.
type Offer struct {
	Origin   string // where from, without secrets: a URL
	Revision string // what the server calls it: an ETag, the hex of OpAMP's config hash; can be empty
	Content  []byte // a counters CSV, or a YAML configuration file that has only a list
	YAML     bool
}

// Outcome is the answer to an Offer.
type Outcome struct {
	Answer  Answer
	Tried   string    // SHA-256 of the Offer's content, hex
	Running string    // hash of the list in service
	Refused []Refusal // what the guard or the parser refuses
	Err     error     // why the list in service stays, in words for the server's operator; nil: it serves, or was compared
	Until   time.Time // when the former list returns by itself; zero: it stays
}

// String returns the refusal as messages show it.
func (r Refusal) String() string {
	if r.Line > 0 {
		return fmt.Sprintf("line %d: %s", r.Line, r.Text)
	}
	return r.Text
}
