package accumulate

// Histogram is the running state of one histogram series, in the unit of the
// series. It is written by Store.Sync and must be read between two Syncs by the
// same goroutine (see Store).
type Histogram struct {
	Count uint64
	Sum   float64

	Bounds []float64 // classic buckets: ascending upper bounds, without +Inf; shared, immutable
	Counts []uint64  // per bucket, not cumulative; len(Bounds)+1, the last is +Inf

	// Native buckets (Prometheus exponential histograms). Positive[i] counts
	// values in the bucket with index First+i; ZeroCount those ≤ ZeroThreshold.
	Schema        int32
	ZeroThreshold float64
	ZeroCount     uint64
	First         int32
	Positive      []uint64
}
