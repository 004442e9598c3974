package rocmtest

import "time"

// State holds the measurements of one GPU. Tests change it with GPU.Update and compare it with a reader's results.
// Units are the firmware's unless named.
type State struct {
	Util, MemUtil, MMUtil uint64 // percent: graphics and compute, memory controller, multimedia
	Watts                 uint64
	EdgeC, JunctionC      uint64 // degrees Celsius
	MemC, VRSocC          uint64
	HBMC                  [4]uint64

	SclkMHz, MclkMHz, SocclkMHz, FclkMHz, VclkMHz, DclkMHz uint64

	FanRPM, FanPWM uint64 // revolutions per minute; 0 to 255
	MilliVolts     uint64

	VRAMUsed, VisVRAMUsed, GTTUsed uint64 // bytes

	Energy         uint64 // 2⁻¹⁶ J
	GfxAcc, MemAcc uint64 // percent × milliseconds
	Nanos          uint64 // the driver's clock

	Replays, Recoveries, Rollovers uint64 // PCIe events
	NAKsSent, NAKsReceived         uint64
	PCIeAcc, PCIeMbits             uint64 // sum and current value, Mb/s
	PCIeSent, PCIeReceived         uint64 // packets in a second, as pcie_bw prints them

	XGMIRead, XGMIWrite [8]uint64 // kB per link
	XGMIUp              [8]uint64 // 1 = up
	XGMILinks           int       // number of existing links, at most 8

	Throttle uint64 // bits, independent of the ASIC
	Cycles   uint64 // accumulation_counter
	Prochot, PPT, SocketThermal, VRThermal,
	HBMThermal uint64 // residencies, in Cycles
	BelowLimit uint64 // cycles in which the clock was below the host's limit, per XCC

	VCN  [4]uint64 // percent
	JPEG [40]uint64

	Correctable, Uncorrectable, Deferred uint64 // RAS counts of the memory controller
}

// period is how long the values take to rise and fall.
const period = 20 * time.Second

// moved returns the state of a GPU d later. The load follows a triangle wave with
// the GPU's own phase, and the counters accumulate it.
func (s State) moved(m spec, phase int, d time.Duration) State {
	// A bus event once a minute and a memory error twice a minute, both since the
	// start. So within seconds tests only see events that they set themselves.
	s.Replays += happened(s.Nanos, d, time.Minute)
	s.Correctable += happened(s.Nanos, d, time.Minute/2)
	s.Nanos += uint64(d)
	at := (time.Duration(s.Nanos) + time.Duration(phase)*7*time.Second) % period
	if at >= period/2 {
		at = period - at
	}
	s.Util = uint64(at * 100 / (period / 2))
	s.MemUtil = s.Util * 6 / 10
	s.MMUtil = s.Util / 4
	s.Watts = m.capWatts/6 + (m.capWatts-m.capWatts/6-m.capWatts/20)*s.Util/100
	s.EdgeC, s.JunctionC, s.MemC, s.VRSocC = 35+s.Util*3/10, 40+s.Util*4/10, 42+s.Util*3/10, 44
	for i := range s.HBMC {
		s.HBMC[i] = s.MemC + uint64(i)
	}
	s.SclkMHz, s.MclkMHz = m.sclkLo+(m.sclkHi-m.sclkLo)*s.Util/100, m.mclkLo
	if s.Util > 0 {
		s.MclkMHz = m.mclkHi
	}
	s.SocclkMHz, s.FclkMHz, s.VclkMHz, s.DclkMHz = 1090, 1400, 29, 22
	s.FanRPM, s.FanPWM = 600+s.Util*12, 40+s.Util*2
	s.MilliVolts = 700 + s.Util*3
	s.VRAMUsed = m.vram / 100 * (5 + s.Util*9/10)
	s.VisVRAMUsed, s.GTTUsed = s.VRAMUsed, 22020096+s.Util*4096

	s.Energy += s.Watts * uint64(d.Microseconds()) * 65536 / 1e6
	s.GfxAcc += s.Util * uint64(d.Milliseconds())
	s.MemAcc += s.MemUtil * uint64(d.Milliseconds())
	s.PCIeSent, s.PCIeReceived, s.PCIeMbits = s.Util*9000, s.Util*4000, 96_000
	s.PCIeAcc += s.Util
	for i := range min(s.XGMILinks, len(s.XGMIRead)) {
		s.XGMIRead[i] += s.Util * 1000 * uint64(i+1)
		s.XGMIWrite[i] += s.Util * 500 * uint64(i+1)
	}
	s.Cycles += uint64(d.Milliseconds())
	s.Throttle = 0
	if s.Util > 95 {
		s.Throttle = 1
		s.PPT += uint64(d.Milliseconds())
		s.BelowLimit += uint64(d.Milliseconds())
	}
	for i := range s.VCN {
		s.VCN[i] = s.MMUtil
	}
	return s
}

// happened returns how often an event with period every happens in the time d after since.
func happened(since uint64, d, every time.Duration) uint64 {
	return (since+uint64(d))/uint64(every) - since/uint64(every)
}

// first returns the state before any time has passed.
func first(m spec, phase int) State {
	s := State{Nanos: 1, Energy: 1000000}
	if m.xgmi {
		s.XGMILinks = 7
		for i := range s.XGMILinks {
			s.XGMIUp[i] = 1
		}
	}
	return s.moved(m, phase, 0)
}
