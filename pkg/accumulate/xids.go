package accumulate

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"warpgauge/pkg/rows"
)

const (
	// maxXIDs bounds the distinct codes that get series for a device. A driver knows less than 200; further
	// codes count as otherXID.
	maxXIDs  = 64
	otherXID = rows.CodeImpossible // label xid="other", with codes that make no sense
)

// knownXIDs have a series of DCGM_EXP_XID_ERRORS_TOTAL from the start, at 0, so that increase() sees the first event. A
// series that appears with value 1 has not increased. They are the codes that NVIDIA's catalogue advises operators to
// act upon, and those that jobs raise most: https://docs.nvidia.com/deploy/xid-errors/
var knownXIDs = []int64{
	13, 31, 43, 45, 48, 61, 62, 63, 64, 68, 69, 74, 79,
	92, 94, 95, 109, 119, 120, 121, 140, 143, 145, 149, 154,
}

// xids counts the XID errors of one device.
type xids struct {
	created int64      // when the first row was read, ns; 0: none yet
	width   int64      // in a slot of the window
	codes   []*xidCode // ascending by code
	none    float64    // 0 without an XID within the window, else NaN
}

type xidCode struct {
	code     int64
	seen     bool // else it exists only for its total's zero
	total    float64
	inWindow float64 // NaN if none
	recent   window
}

func newXIDs(span time.Duration) *xids {
	x := &xids{width: slotWidth(span)}
	for _, c := range knownXIDs {
		x.codes = append(x.codes, &xidCode{code: c, inWindow: math.NaN()})
	}
	return x
}

// count counts the XID in a cell at position at. It reports whether the device has new series.
func (x *xids) count(cell float64, at, now int64) (grew bool) {
	if cell == 0 || math.IsNaN(cell) {
		return false // no XID has the code 0
	}
	c := x.find(cell)
	c.total++
	c.recent.add(at, now, x.width, 1)
	grew = !c.seen
	c.seen = true
	return grew
}

func (x *xids) find(cell float64) *xidCode {
	code := int64(rows.CodeOf(cell))
	i, ok := x.index(code)
	if !ok && len(x.codes) >= maxXIDs-1 { // the last one is otherXID
		code = otherXID
		i, ok = x.index(code)
	}
	if !ok {
		x.codes = slices.Insert(x.codes, i, &xidCode{code: code})
	}
	return x.codes[i]
}

func (x *xids) index(code int64) (int, bool) {
	return slices.BinarySearchFunc(x.codes, code, func(c *xidCode, code int64) int { return cmp.Compare(c.code, code) })
}

func (x *xids) refresh(now int64) {
	x.none = 0
	for _, c := range x.codes {
		if !c.seen {
			continue
		}
		c.inWindow = float64(c.recent.count(now, x.width))
		if c.inWindow == 0 {
			c.inWindow = math.NaN()
		} else {
			x.none = math.NaN()
		}
	}
}

func (c *xidCode) label() string {
	if c.code == otherXID {
		return "other"
	}
	return strconv.FormatInt(c.code, 10)
}
