package rocm

import (
	"cmp"
	"math"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// op is the operation of a term.
type op uint8

const (
	opRaw      op = iota // a raw reading
	opSum                // sum of raw readings; a missing one keeps its last value
	opFree               // first raw reading minus the second
	opShare              // first raw reading divided by the second
	opAny                // 1 if the raw reading, a number of things, is above 0
	opMetric             // the first element of gpu_metrics
	opCount              // opMetric for a counter; continued when 32 bits wrap
	opLinked             // opMetric for a counter, but not in a row in which it has grown by more than links carry
	opMax                // maximum of the available elements
	opMean               // their mean
	opTotal              // their sum
	opRate               // growth of the sum of counters per second
	opMeanRate           // growth of the mean of counters per second
	opMask               // 1 if one of the mask's bits is set in the throttle status
	opReasons            // NVIDIA's clock event bits from the throttle status
	opPart               // growth of the second counter as a share of the first one's
	opHeld               // nanoseconds: Σ (largest residency ÷ all cycles × time)
	opBus                // pcie_bw, 0 sent, 1 received
	opUnread             // unread part of the GPU; first is one of unread…
	opProcess            // number, bytes or compute units of processes, by at; first is the instance, -1 for all
	opRecord             // records from libamd_smi: first is the severity, at one of record…
	opFixed              // constant: scale
)

// Unread parts of a GPU.
const (
	unreadMetrics    = iota // 1 if the revision of gpu_metrics is unknown
	unreadAttributes        // number of unknown attributes of gpu_metrics
	unreadPartitions        // number of partitions that KFD hides
)

// term is one formula for a value.
type term struct {
	op      op
	raw     []sysfs.Reading
	metric  []gpumetrics.Field
	first   int // elements first … first+count-1 of each metric
	count   int
	scale   float64 // of the result
	plus    float64 // added to the result
	mask    uint64
	maxRate float64 // maximum growth of a counter per second
	nonzero bool    // 0 means "not reported"
	// Of a rate over links: bytes per second of its unit (0: it has no limit), links, width (behind it the speed) in
	// gpu_metrics, and what a link carries otherwise.
	bytes, most float64
	links       int
	width       gpumetrics.Field
	// confirm lists the throttle bits that count only near a temperature's limit, with the temperature of gpu_metrics.
	// The limits are in raw.
	confirm []confirmation
	speed   bool // GT/s, converted to the PCIe generation
	at      int  // opPart: element of the second counter; opProcess, opRecord
	// group numbers alternative sources of one quantity. Only the first group that the board supports counts, so that a
	// value never jumps from one sensor to another.
	group int
}

// confirmation is a throttle bit that counts only near its sensor's limit.
type confirmation struct {
	bit         uint64
	temperature gpumetrics.Field
}

// spec is an unbound column.
type spec struct {
	field  field.ID
	labels []collector.Label
	terms  []term // the first term with a value counts
}

// ofResidencies reports whether the throttle status comes from the growth of residencies.
func (t *term) ofResidencies() bool {
	return (t.op == opMask || t.op == opReasons) && t.metric[0] != gpumetrics.IndepThrottleStatus
}

func label(name, value string) []collector.Label {
	return []collector.Label{{Name: name, Value: value}}
}

// rawTerm returns the term of a raw reading × scale.
func rawTerm(k sysfs.Kind, index uint8, scale float64) term {
	return term{op: opRaw, raw: []sysfs.Reading{{Kind: k, Index: index}}, scale: scale}
}

func pair(op op, a, b sysfs.Reading, scale float64) term {
	return term{op: op, raw: []sysfs.Reading{a, b}, scale: scale}
}

// metric returns the term of element i of a member of gpu_metrics × scale.
func metric(f gpumetrics.Field, i int, scale float64) term {
	return term{op: opMetric, metric: []gpumetrics.Field{f}, first: i, count: 1, scale: scale}
}

// counter returns the term of a counter of gpu_metrics × scale, with its maximum growth per second.
func counter(f gpumetrics.Field, scale, most float64) term {
	return term{op: opCount, metric: []gpumetrics.Field{f}, count: 1, scale: scale, maxRate: most}
}

// over returns the term of op over the elements first … first+count-1 of members of gpu_metrics.
func over(op op, scale float64, first, count int, f ...gpumetrics.Field) term {
	return term{op: op, metric: f, first: first, count: count, scale: scale}
}

// within limits a rate over links, each direction as one, to what they carry: see term.
func (t term) within(bytes float64, links int, width gpumetrics.Field, most float64) term {
	t.bytes, t.links, t.width, t.most = bytes, links, width, cmp.Or(most, math.Inf(1))
	return t
}

// orElse marks a term as an alternative to the terms of lower groups.
func (t term) orElse(group int) term {
	t.group = group
	return t
}

// nonzeroOnly makes 0 blank.
func (t term) nonzeroOnly() term {
	t.nonzero = true
	return t
}

// generation makes the term convert a speed to a PCIe generation.
func (t term) generation() term {
	t.speed = true
	return t
}

// pcieGeneration returns the generation of a speed in GT/s, or NaN for an unknown speed.
func pcieGeneration(speed float64) float64 {
	out := math.NaN()
	for i, least := range [...]float64{2.5, 5, 8, 16, 32, 64} {
		if speed >= least {
			out = float64(i + 1)
		}
	}
	return out
}

// DCGM's IDs of the fields that AMD GPUs have (dcgm_fields.h) and package field does not name.
const (
	dcgmCount         field.ID = 4
	dcgmIndex         field.ID = 52
	dcgmMinor         field.ID = 55
	dcgmMemClock      field.ID = 101
	dcgmVideoClock    field.ID = 102
	dcgmMaxSMClock    field.ID = 113
	dcgmMaxMemClock   field.ID = 114
	dcgmMaxVideoClock field.ID = 115
	dcgmMemoryTemp    field.ID = 140
	dcgmPowerInstant  field.ID = 157
	dcgmShutdownTemp  field.ID = 159
	dcgmPowerLimit    field.ID = 160
	dcgmPowerLimitMin field.ID = 161
	dcgmPowerLimitMax field.ID = 162
	dcgmPowerLimitDef field.ID = 163
	dcgmPowerEnforced field.ID = 164
	dcgmFan           field.ID = 191
	dcgmPCIeTxKB      field.ID = 200
	dcgmPCIeRxKB      field.ID = 201
	dcgmMemUtil       field.ID = 204
	dcgmEncUtil       field.ID = 206
	dcgmDecUtil       field.ID = 207
	dcgmMaxLinkGen    field.ID = 235
	dcgmMaxLinkWidth  field.ID = 236
	dcgmFBTotal       field.ID = 250
	dcgmFBFree        field.ID = 251
	dcgmFBUsed        field.ID = 252
	dcgmFBUsedRatio   field.ID = 254
	dcgmLinksTotal    field.ID = 449
	dcgmLinksTx       field.ID = 843
	dcgmLinksRx       field.ID = 897
	dcgmDRAMActive    field.ID = 1005
	dcgmPCIeTx        field.ID = 1009
	dcgmPCIeRx        field.ID = 1010
	dcgmLinksTxBytes  field.ID = 1011
	dcgmLinksRxBytes  field.ID = 1012
	dcgmLink          field.ID = 1529
	dcgmLinkTx        field.ID = 1530
	dcgmLinkRx        field.ID = 1531

	// Texts.
	dcgmDriver field.ID = 1
	dcgmName   field.ID = 50
	dcgmBrand  field.ID = 51
	dcgmSerial field.ID = 53
	dcgmUUID   field.ID = 54
	dcgmPCI    field.ID = 57
	dcgmVBIOS  field.ID = 85
)
