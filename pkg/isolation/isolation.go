// Package isolation runs a collector and its sampler in a child process and
// looks like a sampler.Sampler to the parent. Nothing that a vendor's library
// does to its process reaches the parent: rows come through shared memory, which
// the parent only reads, and everything else through a socket, on which each
// frame has a version, a length and a checksum, and each message hard bounds.
//
// The parent calls New and Run; cmd calls Child in the process that a
// Supervisor started. Neither shares a goroutine with a scrape.
//
//	parent                                child
//	          ◄── hello ───────────────     version, pid
//	          ─── setup ──────────────►     options, field list
//	          ◄── source ──────────────     devices, columns, rows
//	          ─── memory + descriptor ►     the ring to write
//	          ◄── service ─────────────     which sources to show
//	          ◄── status, log, metrics      once a second, or on change
//	          ─── list ───────────────►     reload
//	          ◄── reloaded ────────────
//	          ─── stop ───────────────►
package isolation

// What a child may ask of its parent at most. A node of 16 GPUs with every field
// and all links stays below a hundredth of each.
const (
	maxFrame       = 4 << 20  // bytes of a message
	maxSources     = 32 << 10 // of a child, in service or not
	maxDevices     = 16 << 10 // of a source
	maxColumns     = 128 << 10
	maxRows        = 1024
	maxMemory      = 1 << 30   // bytes of all rings of a child
	maxAllDevices  = 256 << 10 // of all sources
	maxAllColumns  = 2 << 20
	maxAllBytes    = 96 << 20 // of their messages
	maxFacts       = 64       // labels of a device
	maxLabels      = 16       // labels of a column
	maxName        = 256      // bytes of a label's name, or of one of ours
	maxText        = 4096     // bytes of a label's value, of a reason, of a log's field
	maxMessage     = 16 << 10
	maxLogFields   = 32
	maxFamilies    = 512
	maxSeries      = 64 << 10 // of all families
	maxBuckets     = 128
	maxListBytes   = 3 << 20
	maxStatus      = 64 << 10 // devices that are not up
	framesPerTick  = 64 << 10 // between two looks at the child
	logsPerTick    = 200
	maxStderrLine  = 1024
	stderrLines    = 24
	stderrAfter    = 12 // lines kept after the one that tells of a crash
	protocolNumber = 1
)

// Reasons for the end of a child, in warpgauge_collector_restarts_total.
const (
	ReasonExit     = "exit"     // ended by itself
	ReasonSignal   = "signal"   // ended by a signal from outside
	ReasonCrash    = "crash"    // SIGSEGV and the like, or a panic
	ReasonAbort    = "abort"    // abort() or a failed assertion
	ReasonHung     = "hung"     // silent, or no call of its returned; killed
	ReasonProtocol = "protocol" // broke a bound or rule of the channel; killed
	ReasonVersion  = "version"  // is not of this build; killed
	ReasonMemory   = "memory"   // over the limit; replaced
	ReasonStart    = "start"    // could not be started
	ReasonOutdated = "outdated" // its library no longer fits the driver; replaced
)

var reasons = []string{
	ReasonAbort, ReasonCrash, ReasonExit, ReasonHung, ReasonMemory,
	ReasonOutdated, ReasonProtocol, ReasonSignal, ReasonStart, ReasonVersion,
}
