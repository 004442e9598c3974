package isolation

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// verdict says why a child ended.
type verdict struct {
	reason string // one of Reason…, or quiet
	text   string
}

// quiet is the reason of an end that is no restart: the exporter stops, or the
// child had nothing to sample.
const quiet = ""

// judge classifies an end that the parent did not cause.
func judge(e exit, words *lastWords) verdict {
	switch e.signal {
	case 0:
	case syscall.SIGABRT:
		return verdict{ReasonAbort, "aborted: " + words.said()}
	case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE, syscall.SIGSYS, syscall.SIGTRAP:
		return verdict{ReasonCrash, fmt.Sprintf("crashed: %s (%v)", unix.SignalName(e.signal), e.signal)}
	default:
		return verdict{ReasonSignal, fmt.Sprintf("ended by %s (%v)", unix.SignalName(e.signal), e.signal)}
	}
	if reason, text := words.explain(); reason != "" && e.code != 0 {
		return verdict{reason, text}
	}
	text := fmt.Sprintf("exited with code %d", e.code)
	if last := words.last(); last != "" {
		text += ": " + last
	}
	return verdict{ReasonExit, text}
}
